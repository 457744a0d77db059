"""Preflight: is every host fit for the job? All hosts side by side, one verdict for each host and check.

Each check is a row of a table: what it looks at, and what a user does about what it finds (docs/check.md has a section
for each code). Nothing of the job is changed; what is left on hosts while looking is removed again.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Sequence

from jobctl.jobspec.deploy.check import checks, comparisons
from jobctl.jobspec.deploy.check.probing import probe_said, probe_source
from jobctl.jobspec.deploy.check.survey import CheckedHost, Survey, binds, of_error
from jobctl.jobspec.deploy.host import facts
from jobctl.jobspec.deploy.host.devices_in_use import devices_in_use
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.ports import used_ports
from jobctl.jobspec.deploy.images import images, spread
from jobctl.jobspec.deploy.images.copy import ImageSources
from jobctl.jobspec.deploy.images.processors import misfit
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.transport.base import checked
from jobctl.jobspec.deploy.transport.fanout import MAX_PARALLEL, fan_out
from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.plan.generation import next_port
from jobctl.jobspec.plan.types import Container, Node, Plan
from jobctl.jobspec.render.shell import Look, look_script
from jobctl.jobspec.spec.hosts import is_address

MEETING = 5.0  # seconds in which all hosts have to reach each other
PORTS = 4  # that are tried for that: one that is free now may be taken when it is needed
READY_TIMEOUT = 20.0  # seconds between the first container that stands ready for that and the last


class Preflight:
    """The checks of one job (or, with no plan, of bare hosts). `others` are not checked, and may have its image."""

    def __init__(
        self, host_jobs: Sequence[HostJob], plan: Plan | None, *, deep: bool = False, others: Sequence[HostJob] = ()
    ) -> None:
        nodes, services = (plan.nodes, plan.services) if plan else ((), ())
        self.plan = plan
        self.seats = [
            CheckedHost(
                host_job,
                tuple(node for node in nodes if node.host.name == host_job.host.name),
                tuple(service for service in services if service.host.name == host_job.host.name),
            )
            for host_job in host_jobs
        ]
        self.sources = ImageSources([*host_jobs, *others])
        self.survey = Survey(plan, self.seats, deep, images=self.sources)
        self.token = secrets.token_hex(4)
        self.ports: tuple[int, ...] = ()
        self._asked: list[CheckedHost] = []  # hosts on which something may have been left

    def run(self) -> list[Finding]:
        """Look at all hosts; return the findings, by host in the order of the hosts file."""
        try:
            self._look()
        finally:  # also when somebody has pressed Ctrl-C
            fan_out(self._asked, lambda seat: facts.forget(seat.host_job, self._mine(seat)))
        for seat in self.seats:
            for check in checks.OF_ONE:
                self.survey.findings += check(self.survey, seat)
        for compare in comparisons.OF_ALL:
            self.survey.findings += compare(self.survey, [seat for seat in self.seats if seat.facts])
        order = {seat.name: number for number, seat in enumerate(self.seats)}
        return sorted(self.survey.findings, key=lambda finding: order.get(finding.host, -1))

    def _look(self) -> None:
        """Find out all that the checks want to know."""
        self._everywhere("ssh", self._meet)
        self._everywhere("engine", self._engine)
        if self.plan is not None:
            self._everywhere("image", self._image)
            self._everywhere("devices", self._in_use)
        self._sharing()
        if self.plan is not None:
            self.ports = self._meeting_ports(self.plan)
            # They wait for each other
            self._everywhere("container", self._container, max(MAX_PARALLEL, len(self.seats)))

    def _mine(self, seat: CheckedHost) -> str:
        return f"{self.token}-{seat.host_job.folder}"

    def _everywhere(self, check: str, task: Callable[[CheckedHost], None], at_once: int = MAX_PARALLEL) -> None:
        """Do something on all hosts that have not failed yet, on `at_once` at a time; an error of a host is its finding."""
        outcome = fan_out(self._here, task, at_once)
        for seat, error in outcome.failed.items():
            self.survey.findings.append(of_error(seat.name, check, error))

    @property
    def _here(self) -> list[CheckedHost]:
        """The hosts that answer, and whose engines do."""
        return [seat for seat in self.seats if not self.survey.failed(seat, "ssh", "engine")]

    # Looking.

    def _meet(self, seat: CheckedHost) -> None:
        paths = sorted({mount.source for mount in binds(None, seat.nodes)})
        names = sorted({node.host.address for node in self.plan.nodes} if self.plan else ())
        # A host that does not answer has nothing to clean up.
        checked(seat.host_job.transport, ["true"], "run a command")
        self._asked.append(seat)
        seat.facts = facts.ask(seat.host_job, self._mine(seat), paths, [name for name in names if not is_address(name)])

    def _engine(self, seat: CheckedHost) -> None:
        seat.engine = seat.host_job.engine.kind()

    def _image(self, seat: CheckedHost) -> None:
        if seat.nodes:
            seat.image, seat.image_sources = self._can_be_had(seat, seat.nodes[0].container)
        for service in seat.services:
            self._can_be_had(seat, service.container)

    def _can_be_had(self, seat: CheckedHost, container: Container) -> tuple[str | None, Sequence[str]]:
        """Return the content of the container's image on a host, None if it is not there yet, and who else has it then.

        The content is a hash (`image_content`). Raises HostError if the image cannot be had.
        """
        image, processor = container.image, seat.engine.processor if seat.engine else ""
        found = images.look(seat.host_job, image, fit=container.pull != "never")
        sources = self.sources.have(image, processor) if found is None and container.pull != "always" else []
        if found is None and not sources and self.survey.builds(image):
            return None, ()
        if container.pull == "never" and found is None and not sources:
            raise images.missing(seat.name, image, self.sources.have(image))
        if container.pull == "always" or (found is None and not sources):
            try:
                self._ask_registry(seat, image)
            except HostError as refusal:  # an image for another processor is better than none: the host may emulate it
                if container.pull == "always" or (found := images.look(seat.host_job, image)) is None:
                    raise
                self._warn_of_processor(seat, image, refusal)
        elif found is not None and container.pull == "never":
            self._warn_of_processor(seat, image)
        return found.ids[-1] if found else None, sources

    def _warn_of_processor(self, seat: CheckedHost, image: str, refusal: HostError | None = None) -> None:
        """Warn of an image if it is for another processor. `refusal`: why the registry does not give it for this one."""
        why = misfit(seat.host_job.engine, image)
        if why is not None:
            text = f"its image `{image}` {why}" + (f"; {refusal.cause}" if refusal is not None else "")
            hint = refusal.hint if refusal is not None else "`pull: missing` and `pull: always` get it for this host's"
            self.survey.findings.append(Finding(seat.name, "image", "warning", text, "image-processor", hint))

    def _ask_registry(self, seat: CheckedHost, image: str) -> None:
        """Ask whether the registry would give an image. One host that reaches it can hand it on. Raises HostError if not."""
        try:
            images.digest_in_registry(seat.host_job, image)
        except HostError as error:
            others = [other for other in self.seats if other is not seat][: spread.ROUNDS]
            if error.code != "registry-unreachable" or "@" in image:
                raise
            if not fan_out(others, lambda other: images.digest_in_registry(other.host_job, image)).done:
                raise

    def _in_use(self, seat: CheckedHost) -> None:
        seat.busy = devices_in_use(seat.host_job) if seat.nodes else {}

    def _sharing(self) -> None:
        """Have every host look for the tokens of all others."""
        there = [seat for seat in self._here if seat.facts]
        tokens = {self._mine(seat): seat.name for seat in there}
        outcome = fan_out(there, lambda seat: facts.visible(seat.host_job, list(tokens)))
        for seat, seen in outcome.done.items():
            others = sorted(tokens[token] for token in seen if tokens[token] != seat.name)
            if others:
                own = seat.facts.values.get("own") if seat.facts else ""
                text = f"its work directory is shared with {', '.join(others)}; locks and secrets go to {own}"
                if own == (seat.facts.values.get("work") if seat.facts else ""):
                    text = f"its work directory is shared with {', '.join(others)}: folders are apart, secrets are not"
                    hint = "give each host a directory of its own with `dir=` in the hosts file"
                    self.survey.findings.append(
                        Finding(seat.name, "work-directory", "warning", text, "dir-shared", hint)
                    )
                else:
                    self.survey.findings.append(Finding(seat.name, "work-directory", "ok", text))
        self._checkpoint(there)

    def _checkpoint(self, there: Sequence[CheckedHost]) -> None:
        """Write a token into the checkpoint directory on each host, and read all of them on each."""
        if self.plan is None or self.plan.checkpoint is None:
            return
        where, homes = self.plan.checkpoint.dir, [seat for seat in there if seat.nodes]
        outcome = fan_out(homes, lambda seat: facts.mark(seat.host_job, where, self._mine(seat)))
        for seat, error in outcome.failed.items():
            self.survey.findings.append(of_error(seat.name, "checkpoint", error))
        marked = [seat for seat in homes if seat in outcome.done]
        try:
            if not self.plan.checkpoint.shared or len(marked) < 2:
                return
            tokens = {self._mine(seat): seat.name for seat in marked}
            seen = fan_out(marked, lambda seat: facts.marks(seat.host_job, where, list(tokens)))
            for seat, found in seen.done.items():
                missing = sorted(name for token, name in tokens.items() if token not in found)
                if missing:
                    self.survey.findings.append(
                        Finding(
                            seat.name,
                            "checkpoint",
                            "error",
                            f"{where} is not shared: what {_names(missing)} wrote is not there",
                            "checkpoint-not-shared",
                            "mount the same storage there on every host, or say `checkpoint: {dir: …, shared: false}`",
                        )
                    )
        finally:
            fan_out(marked, lambda seat: facts.unmark(seat.host_job, where, self._mine(seat)))

    # Inside of a container.

    def _container(self, seat: CheckedHost) -> None:
        plan = self.plan
        if plan is None or not self._can_be_probed(seat):
            return
        node = seat.nodes[0]
        command = (node.container.python, "-c", probe_source(), json.dumps(self._task(seat, node)))
        name = f"jobctl-{plan.job}-look-{self.token}-{self.seats.index(seat)}"
        script = look_script(plan, node, name, str(seat.host_job.work), command, Look())
        result = seat.host_job.starter.run_script(script)
        if result.code != 0:
            raise seat.host_job.starter.error("start a container like the job's", result)
        seat.probe = probe_said(result.out, self.token)
        if seat.probe is None:
            text = f"a container like the job's ran, and what it said cannot be read: {result.words}"
            hint = (
                "does something in the image end its Python early? `jobctl run --hosts … -- true` shows what it prints"
            )
            self.survey.findings.append(Finding(seat.name, "container", "warning", text, "probe-unreadable", hint))

    def _can_be_probed(self, seat: CheckedHost) -> bool:
        """Say whether a container like the job's can be started on a host, as far as is known."""
        there = seat.facts.there if seat.facts else frozenset()
        missing = any(mount.source not in there for mount in binds(self.plan, seat.nodes))
        hangs = seat.driver_hangs and seat.kind == "gpu"
        return bool(seat.nodes) and seat.image is not None and not missing and not hangs

    def _task(self, seat: CheckedHost, node: Node) -> Json:
        plan = self.plan
        assert plan is not None
        peers = [
            {"host": other.name, "address": other.nodes[0].host.address, "me": seat.name}
            for other in self._here
            if other is not seat and self._can_be_probed(other)
        ]
        paths = [(m.target, not m.read_only) for m in node.container.mounts if m.kind == "bind"]
        return {
            "kind": node.container.devices.kind,
            "paths": paths,
            "module": framework(plan.framework).module if self.survey.deep else None,
            "tests": [need.test for need in self.survey.needs],
            "address": node.host.address if is_address(node.host.address) else "",
            "token": self.token,
            "ports": self.ports if peers else (),
            "peers": peers,
            "seconds": MEETING,
            "patience": READY_TIMEOUT,
        }

    def _meeting_ports(self, plan: Plan) -> tuple[int, ...]:
        """Return the ports that hosts try to reach each other at: the job's own, or some that are free on all of them.

        They differ from check to check: two at once must not take each other's.
        """
        homes = [seat for seat in self._here if seat.nodes]
        taken = list(fan_out(homes, lambda seat: used_ports(seat.host_job)).done.values())

        def free(port: int) -> bool:
            return not any(port in ports for ports in taken)

        if plan.rendezvous.port is not None:
            return (plan.rendezvous.port,) if free(plan.rendezvous.port) else ()
        with contextlib.suppress(LookupError):  # not one is free: `checks` tells of that
            return tuple(next_port(f"{plan.run_id} check {self.token}", number, free) for number in range(PORTS))
        return ()


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
