"""Targets `compose` and `ssh`: the nodes of a job as containers of other machines' Docker Engines.

Everything is done on all hosts side by side, and what fails on one is reported for it. Nothing is remembered here that
could not be read again: files and containers of the job lie on its hosts.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Literal, TypeVar

from jobctl.jobspec.deploy.apply.deployer import PLAYED, AllUnreachable, Failures, Start, Victim
from jobctl.jobspec.deploy.apply.generations import choose_generation
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host import images, scripts
from jobctl.jobspec.deploy.host.devices import devices_on
from jobctl.jobspec.deploy.host.host_job import Site
from jobctl.jobspec.deploy.host.lock import Held, check, hold_on
from jobctl.jobspec.deploy.host.ports import used_ports
from jobctl.jobspec.deploy.host.send_code import pack_code
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Control, Image, Ledger, kept_control, ledger_json, newest
from jobctl.jobspec.deploy.model.errors import UNHEARD, DeployError, HostError, NothingToEnter
from jobctl.jobspec.deploy.model.host_state import Seen, control_of, together, unreadable
from jobctl.jobspec.deploy.model.inventory import Reach, SshOptions
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, waits_for
from jobctl.jobspec.deploy.model.untrusted import objects
from jobctl.jobspec.deploy.store.archive import free_name
from jobctl.jobspec.deploy.store.events import Written
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import break_lock, hold, read_holder
from jobctl.jobspec.deploy.targets.background import end_supervisor
from jobctl.jobspec.deploy.transport.base import Transport, checked
from jobctl.jobspec.deploy.transport.fanout import AT_ONCE, Outcome, fan_out
from jobctl.jobspec.deploy.transport.local import Here
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Generation, Node, Plan
from jobctl.jobspec.render.artefact import (
    Artefact,
    control_json,
    folder,
    hashes,
    read_templates,
    render,
    service_hashes,
)
from jobctl.jobspec.render.container import code_directory
from jobctl.jobspec.spec.hosts import Host

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.watch import Following, HostFeed
    from jobctl.jobspec.deploy.logs.reader import Logs
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.model.log_lines import Selection

START_TIMEOUT = 60.0  # seconds within which a started launcher reports
ENDING = 2.0  # seconds, beyond the grace of its processes, that a launcher takes to do as it is told
LOOK = 0.2  # seconds between two looks at what is waited for

T = TypeVar("T")


def transport_to(host: Host, options: SshOptions) -> Transport:
    """Return the connection to a host, not open yet."""
    return Here(host.name) if host.local else Ssh(host, options)


class Hosts:
    """The deployer of one job on other machines (and on this one, where the hosts file says `localhost`)."""

    interval = 1.0  # one command and one request of the engine's on every host

    def __init__(self, job: JobDir, target: Literal["compose", "ssh"], reach: Reach, plan: Plan | None = None) -> None:
        self.job, self.plan, self.reach, self._target = job, plan or job.plan(), reach, target
        self.tell: Callable[[str], None] = lambda text: None
        self.sites = {
            h.name: Site(h, transport_to(h, reach.ssh), job.name, target, lambda text: self.tell(text))
            for h in reach.hosts
        }
        self.image: Image | None = None
        self._held: Held | None = None
        self._following: Following | None = None
        self._seen: Mapping[str, Seen] = {}
        self._down: Failures = {}
        self._silent: dict[str, DeployError] = {}  # hosts that do not answer, and are not asked again
        # The newest generation and ledger that were ever begun or seen: hosts that have them may be gone.
        self._before: Control | None = None

    def where(self) -> tuple[str, ...]:
        """Return the names of all hosts that the job may be on."""
        return tuple(self.sites)

    def has_files(self) -> bool:
        """Say whether a host has a work directory of the job, as last observed."""
        return any(seen.there for seen in self._seen.values())

    def reach_out(self) -> None:
        """Connect to the hosts that are asked first, in the background: there is something else to do before."""
        # Docker's SDK imports paramiko too, and threads that do so at the same time may see half of it.
        import fabric

        del fabric
        for site in itertools.islice(self.sites.values(), AT_ONCE):
            site.transport.reach_out()
        # While hosts let us in: what is needed as soon as they have.
        import docker

        del docker
        read_templates(self._target)

    def count_devices(self, kind: str, hosts: Iterable[str]) -> tuple[Mapping[str, int], Failures]:
        """Return how many devices hosts have, none left out that have some, and which hosts could not be asked."""
        outcome = self._on(hosts, devices_on)
        counts = {site.host.name: found[kind] for site, found in outcome.done.items() if kind in found}
        return counts, self._failures(outcome)

    # Observing.

    def observe(self) -> Observed:
        """Read what runs now from all hosts. Raises the first host's error if none answers."""
        # A host that could not even be locked a moment ago would cost its whole timeout once more.
        known = {**self._silent, **(self._held.failed if self._held else {})}
        outcome = fan_out([site for host, site in self.sites.items() if host not in known], self._look)
        failed = {**known, **{site.host.name: error for site, error in outcome.failed.items()}}
        if failed and not outcome.done:
            self._seen, self._down = {}, failed
            raise AllUnreachable(failed, self._together({}, failed))
        self._seen = {site.host.name: seen for site, seen in outcome.done.items()}
        self._down = failed | unreadable(self._seen)
        return self._together(self._seen, failed)

    def newest(self) -> Control:
        """Return the newest generation and ledger; who does not answer is not waited for again by this command."""
        outcome = fan_out(self.sites.values(), Site.control)
        if outcome.done:
            self._silent = {site.host.name: error for site, error in outcome.failed.items()}
        return newest(outcome.done.values())

    def _look(self, site: Site) -> Seen:
        """Read what is on a host. While it is followed, launchers are believed where its engine does not answer."""
        following = self._following
        return site.observe() if following is None else following.look(site.host.name)

    @property
    def failures(self) -> Failures:
        """Why hosts did not answer when last observed."""
        return self._down

    def _together(self, seen: Mapping[str, Seen], failed: Failures) -> Observed:
        planned = {node.index: node.host.name for node in self.plan.nodes} if self.plan else {}
        unreachable = {host: error.message for host, error in failed.items()}
        supervised = bool(read_holder(self.job.supervisor_lock))
        before = self._before if failed else None
        services = {service.name: service.host.name for service in self.plan.services} if self.plan else {}
        observed = together(seen, unreachable, planned, supervised=supervised, before=before, services=services)
        self._before = observed.control
        return replace(observed, changing=self.job.is_changing())

    def preflight(self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False) -> list[Finding]:
        """Check whether hosts are fit for the job; finds everything that is wrong, and changes nothing."""
        from jobctl.jobspec.deploy.check.preflight import Preflight

        return Preflight([self.sites[host] for host in self.sites if host in set(hosts)], plan, deep=deep).run()

    # What is wanted.

    def hashes(self, plan: Plan) -> Mapping[int, str]:
        """Return what identifies each node's artefact."""
        return hashes(plan)

    def service_hashes(self, plan: Plan) -> Mapping[str, str]:
        """Return what identifies each service's artefact."""
        return service_hashes(plan)

    def spares(self, plan: Plan) -> Mapping[str, str]:
        """Return what identifies that which each spare host is to have: code, image and the names of secrets."""
        homes = {node.host.name for node in plan.nodes}
        node = plan.nodes[0]
        needed = [plan.code.version if plan.code else None, node.container.image, sorted(node.launch.secrets)]
        version = sha256(json.dumps(needed).encode()).hexdigest()[:16]
        return {host.name: version for host in self.reach.hosts if host.spare and host.name not in homes}

    def _idle(self, plan: Plan) -> frozenset[str]:
        """Return the hosts beside spares that a node may move to: they take part in the job, and have no node (`homes`).

        A node has left them for a spare, or they run a member of etcd only.
        """
        shared = plan.checkpoint is None or plan.checkpoint.shared
        if plan.recovery.on_host_loss != "replace" or not shared:
            return frozenset()
        homes = {node.host.name for node in plan.nodes}
        there = {name for name, seen in self._seen.items() if seen.there}
        there |= {service.host.name for service in plan.services}
        idle = (host for host in self.reach.hosts if host.trains and not host.spare and host.name in there - homes)
        return frozenset(host.name for host in idle if host.name not in self.reach.left)

    # Whose turn it is.

    @contextlib.contextmanager
    def lock(self, command: str, *, break_it: bool = False) -> Iterator[None]:
        """Hold the job's lock, here and on all hosts that can be reached, while steps are applied."""
        if break_it:
            break_lock(self.job.lock)
        heard = [site for host, site in self.sites.items() if host not in self._silent]
        with (
            hold(self.job.lock, command),
            hold_on(heard, "lock", command, break_it=break_it) as held,
        ):
            self._held = held
            held.failed |= self._silent
            try:
                yield
            finally:
                self._held = None

    @contextlib.contextmanager
    def follow(self) -> Iterator[HostFeed]:
        """Be the job's only supervisor, wherever others may be started: launchers are answered."""
        from jobctl.jobspec.deploy.host.watch import Following, HostFeed
        from jobctl.jobspec.deploy.model.liveness import Vitals

        me = sha256(f"{socket.gethostname()} {self.job.root}".encode()).hexdigest()[:16]
        last, ledger, previous = self.job.kept_run()
        vitals = Vitals(time.monotonic, token_hex(4), previous=kept_control(previous).generation)
        following = Following(list(self.sites.values()), vitals, me)
        with hold(self.job.supervisor_lock, "supervise", wait=0.0):
            following.start()
            self._before = self._before or kept_control(last, ledger)
            self._following = following
            try:
                yield HostFeed(following, self._heard)
            finally:
                self._following = None
                following.close()

    def _heard(self, seen: Mapping[str, Seen], silent: Failures) -> Observed:
        """Return the job as heard of; who is silent is not waited for by what is done now."""
        self._silent, self._down, self._seen = dict(silent), {**silent, **unreadable(seen)}, seen
        if not seen:
            raise AllUnreachable(silent, self._together({}, silent))
        return self._together(seen, silent)

    # Changing.

    def prepare(self, plan: Plan, start: Start) -> Failures:
        """Put artefacts, code, secrets and images in place on the hosts of the plan; what runs is not touched by that."""
        check(self._held)
        self.plan = plan
        files = self._artefacts(plan)
        code = pack_code(plan) if plan.code else None
        names = sorted({name for node in plan.nodes for name in node.launch.secrets})
        missing = [name for name in names if name not in start.secrets]
        if missing:
            raise DeployError(f"no value of secret {', '.join(missing)} is known", "`jobctl up` reads secrets")
        secrets = {name: start.secrets[name] for name in names}
        changing = self.job.is_changing()  # what runs needs its secrets until the change is made

        spares, idle = self.spares(plan), self._idle(plan)
        trains = {node.host.name for node in plan.nodes} | set(spares)
        serves = {service.host.name for service in plan.services}

        def send(site: Site) -> Image | None:
            name = site.host.name
            if name in trains or name in serves:
                serve(site)
            if name in trains:
                return equip(site)
            if name in idle:  # what it cannot take is no error: it is needed only if a node moves there
                with contextlib.suppress(HostError):
                    serve(site)
                    equip(site)
            return None

        def serve(site: Site) -> None:
            site.send(files[site.host.name], _directories(plan, site), secrets=bool(secrets) or changing)
            for service in plan.services:
                if service.host.name == site.host.name:
                    images.ensure(site, service.container)

        def equip(site: Site) -> Image | None:
            if code is not None:
                code.send(site)
            site.send_secrets({**(site.secrets() or {}), **secrets} if changing else secrets)
            if plan.checkpoint:
                make_directory(site, plan.checkpoint.dir)
            image = images.ensure(site, plan.nodes[0].container)
            site.give(plan.nodes[0].container)
            if site.host.name in spares:
                site.note_prepared(spares[site.host.name])
            return image

        outcome = self._on(set(files) - set(self._down), send)
        self.image = images.together(image for image in outcome.done.values() if image is not None)
        return self._failures(outcome)

    def leave_secrets(self, secrets: Mapping[str, str]) -> None:
        """Leave no other secrets than these on the hosts of the job."""
        self._on([host for host in self._seen if host not in self._down], lambda site: site.leave_secrets(secrets))

    def started_with(self) -> Start | None:
        """Return the secrets that hosts of the job have; what they have is the same on all."""
        for site in self.sites.values():
            try:
                found = site.secrets() if site.host.name in self._seen else None
            except HostError:
                continue
            if found is not None:
                return Start({}, found)
        return None

    def homes(self, observed: Observed) -> tuple[str, ...]:
        """Return the hosts with room for a node that has to move, spares first; one with room for two is there twice."""
        at = {node.index: node.host.name for node in self.plan.nodes} if self.plan else {}
        at |= observed.control.homes
        taken = Counter(at.values())
        trains = [host for host in self.reach.hosts if host.trains and host.name not in self.reach.left]
        ready = [host for host in trains if (seen := self._seen.get(host.name)) is not None and seen.there]
        return tuple(
            host.name
            for host in sorted(ready, key=lambda host: not host.spare)
            for _ in range(host.nodes - taken[host.name])
        )

    def settle_in(self, plan: Plan, hosts: Iterable[str]) -> Failures:
        """Put on `hosts` what nodes that move there need: what `prepare` left on spares, and their artefacts."""
        check(self._held)
        files = self._artefacts(plan)

        def send(site: Site) -> None:
            site.send(files[site.host.name], _directories(plan, site), secrets=True)
            if plan.code and not site.has(code_directory(plan.code)):
                message = "the code that runs is not there: it did not answer when `up` sent it"
                raise HostError(site.host.name, "not-prepared", message, "`jobctl up` sends it")
            if plan.checkpoint:
                make_directory(site, plan.checkpoint.dir)
            site.give(plan.nodes[0].container)

        return self._failures(self._on(hosts, send))

    def _artefacts(self, plan: Plan) -> dict[str, list[Artefact]]:
        """Return the files of each host: its own folder of what `render` prints, and the launcher; of spares only that."""
        spares = [host.name for host in self.reach.hosts if host.spare]
        homes = [node.host.name for node in plan.nodes] + [service.host.name for service in plan.services]
        found: dict[str, list[Artefact]] = {name: [] for name in (*homes, *spares, *sorted(self._idle(plan)))}
        folders = {folder(host): host for host in found}
        for artefact in render(plan, first_generation(plan)):
            where, slash, path = artefact.path.partition("/")
            if slash:
                found[folders[where]].append(replace(artefact, path=path))
            elif artefact.path == "launcher.py":
                for files in found.values():
                    files.append(artefact)
        return found

    def engines(self, hosts: Iterable[str], patience: float) -> Failures:
        """Return which hosts' engines do not answer, even after `patience` seconds."""
        return self._failures(self._on(hosts, lambda site: site.engine.wait(patience)))

    def apply(self, steps: Sequence[Step]) -> Failures:
        """Carry out steps about nodes, and hand-overs, on each host in their order."""
        check(self._held)
        todo = {host: [step for step in steps if step.host == host] for host in {step.host for step in steps}}
        fresh: dict[str, Seen] = {}
        outcome = self._on(todo, lambda site: self._settle(site, self._apply_on(site, todo[site.host.name]), fresh))
        self._seen = {**self._seen, **fresh}
        return self._failures(outcome)

    def _apply_on(self, site: Site, steps: Sequence[Step]) -> set[int]:
        """Carry out the steps of one host; return the nodes whose launchers were started."""
        seen = self._seen.get(site.host.name)
        reports = seen.reports if seen else {}
        started = set()
        for step in steps:
            if step.service is not None:
                _apply_service(site, step)
                continue
            if step.kind == "prepare":
                continue  # `prepare` has done it
            if step.node is None:
                control = self._before or control_of(self._seen)  # what was observed last
                self._raise_if_all(self._hand_over([site.host.name], control.generation, control.ledger))
                continue
            if step.kind != "start" or seen is None or any(c.node == step.node for c in seen.containers):
                site.end(step.node, step.grace)
            if step.kind == "remove" and not step.stale:
                site.forget(step.node)
            if step.kind in ("replace", "start"):
                site.announce(step.node, reports.get(step.node))
                site.start(step.node, self._instead(site, step.node))
                started.add(step.node)
        return started

    def _instead(self, site: Site, node: int) -> str | None:
        """Return the image to start a node with if its name means another one by now than at `up`."""
        if self.image is not None or self.plan is None:  # this is `up`: it has just looked
            return None
        container = next((n.container for n in self.plan.nodes if n.index == node), None)
        return images.instead(site, container, control_of(self._seen).ledger.image) if container else None

    def _settle(self, site: Site, started: Iterable[int], fresh: dict[str, Seen]) -> None:
        """Wait until every launcher that was started reports; put down how the host looks. Raises HostError if one does not."""
        deadline = time.monotonic() + START_TIMEOUT
        waiting = set(started)
        while waiting:
            seen = fresh[site.host.name] = site.observe()
            for container in seen.containers:
                if container.node in waiting and not container.running and not seen.ended(container.node):
                    raise _died(site, container)
            waiting = {node for node in waiting if not seen.started(node)}
            if waiting and time.monotonic() > deadline:
                node = min(waiting)
                message = f"the launcher of node {node} says nothing"
                raise HostError(
                    site.host.name, "launcher-silent", message, f"`docker logs jobctl-{self.job.name}-{node}` there"
                )
            if waiting:
                time.sleep(LOOK)

    def stop_processes(self, grace: float) -> None:
        """End all processes of the job, at the same time on all nodes; the launchers stay."""
        self.command("stop", grace)
        self._until(lambda node: node.state not in ("starting", "running"), grace + ENDING)

    def next_generation(self, plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node]) -> Generation:
        """Return the generation after `last` (the first, if None) with ports that are free on their hosts."""
        first = self.sites[min(nodes, key=lambda node: node.index).host.name]
        taken = {first.host.name: used_ports(first)}
        others = {node.host.name for node in nodes if node.launch.listens} - set(taken)
        taken |= {site.host.name: found for site, found in self._on(others, used_ports).done.items()}
        ports = {node.node: node.port for node in self._together(self._seen, self._down).nodes}
        return choose_generation(
            plan, last, grace, nodes, lambda host, port: port not in taken.get(host, ()), first.host.name, ports
        )

    def begin(self, generation: Generation, ledger: Ledger, patience: float = 0.0) -> Failures:
        """Hand a generation to the launchers; the ledger goes first, see control.py."""
        check(self._held)
        before = control_of(self._seen, self._before).generation
        self.job.keep_run(control_json(generation), ledger_json(ledger), control_json(before) if before else None)
        self._before = Control(generation, ledger)
        others = {host for host, seen in self._seen.items() if seen.directories}  # so that left out nodes stop
        hosts = {member.host for member in generation.members} | others
        if len(hosts) > AT_ONCE:  # then some wait for others that would be told after them
            patience = 0.0
        return self._failures(self._hand_over(hosts, generation, ledger, patience))

    def _hand_over(
        self,
        hosts: Iterable[str],
        generation: Generation | None = None,
        ledger: Ledger | None = None,
        patience: float = 0.0,
    ) -> Outcome[Site, None]:
        """Replace the files of the run, side by side: the ledger first, then the control file, as far as given."""
        ours = ledger_json(ledger) if ledger else b""
        theirs = control_json(generation) if generation else b""
        return self._on(hosts, lambda site: site.hand_over(ours, theirs, patience))

    def keep(self, ledger: Ledger) -> None:
        """Keep what recovery has to remember, on all hosts of the job."""
        check(self._held)
        homes = [host for host, seen in self._seen.items() if seen.control.generation or seen.directories]
        self._raise_if_all(self._hand_over(homes, ledger=ledger))

    def command(self, verb: Literal["stop", "finish"], grace: float) -> None:
        """Tell all launchers to `stop` (and stay) or to `finish` (and exit)."""
        check(self._held)
        generation = self.observe().control.generation
        if generation is None:
            return
        homes = [host for host, seen in self._seen.items() if seen.directories]
        self._raise_if_all(self._hand_over(homes, replace(generation, command=verb, grace=grace)))

    def finish(self, grace: float) -> None:
        """End all processes and all launchers; the containers stay, so that it can be seen how they ended."""
        self.command("finish", grace)
        self._until(lambda node: not node.alive, grace + ENDING)
        self._on(self._seen, lambda site: site.containers.kill(self._seen[site.host.name].containers))

    def _until(self, done: Callable[[ObservedNode], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while waited := [n for n in self.observe().nodes if n.reachable and n.alive and not done(n)]:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.tell(waits_for(waited, left - ENDING))
            time.sleep(LOOK)

    def take_down(self, grace: float) -> tuple[Path | None, Failures]:
        """End everything, fetch the logs, and remove all of the job on each host that can be reached."""
        into = free_name(self.job.history / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ"))
        end_supervisor(self.job)
        with contextlib.suppress(AllUnreachable):
            self.finish(grace)

        def remove(site: Site) -> bool:
            containers = site.containers.seen()
            self.tell(f"stopping what still runs on {site.host.name}")
            site.containers.stop(containers, grace)
            self.tell(f"fetching logs and outputs from {site.host.name}")
            count = site.collect(into)
            self.tell(f"removing what is left on {site.host.name}")
            site.containers.remove(containers)
            site.erase([container.image for container in containers])
            return count > 0

        outcome = self._on(self.sites, remove)
        collected = into if into.exists() and any(outcome.done.values()) else None
        return collected, self._failures(outcome)

    # Looking around.

    def exists(self, path: str) -> bool:
        """Say whether there is `path` on the first host of the job that answers."""
        for site in self._homes_first():
            with contextlib.suppress(HostError):
                return site.transport.run(["test", "-e", path]).code == 0
        return False

    def make_directory(self, path: str) -> None:
        """Make a directory on all hosts of the job."""
        self._on([site.host.name for site in self._homes_first()], lambda site: make_directory(site, path))

    def _homes_first(self) -> Iterable[Site]:
        homes = {node.host.name for node in self.plan.nodes} if self.plan else set(self.sites)
        return [self.sites[host] for host in self.sites if host in homes and host not in self._down]

    def events(self) -> Written:
        """Return what reads this machine's history."""
        return Written(self.job.events)

    def logs(self, selection: Selection, last: int | None = None) -> Logs | None:
        """Return what reads the chosen logs, None if no host has any."""
        from jobctl.jobspec.deploy.host.logs import HostLogs
        from jobctl.jobspec.deploy.logs.reader import Logs

        self.observe()
        homes = [self.sites[host] for host, seen in self._seen.items() if seen.directories]
        return Logs(HostLogs(homes), selection, last) if homes else None

    def enter(self, node: int | str, argv: Sequence[str]) -> int:
        """Run a command inside of a node's or a service's container."""
        from jobctl.jobspec.deploy.targets.oneoff import terminal_flags

        site, container = self._running(node)
        within = [*site.docker, "exec", container.id, "sh", "-c", scripts.EXISTS, "sh", argv[0]]
        code = site.transport.interact([*site.docker, "exec", *terminal_flags(), container.id, *argv])
        # Some versions of Docker end with 126 for a command that is not there, too.
        return 127 if code == 126 and site.transport.run(within).code == 127 else code

    def show_log(self, service: str, last: int | None, *, follow: bool) -> int:
        """Print what a service's container has printed, whether it runs or not."""
        self.observe()
        for host, seen in self._seen.items():
            for container in seen.containers:
                if container.service == service:
                    site = self.sites[host]
                    how = ["--follow"] * follow + ([] if last is None else ["--tail", str(last)])
                    both = ["sh", "-c", 'exec "$@" 2>&1', "sh"]  # it prints on either stream
                    return site.transport.interact([*both, *site.docker, "logs", *how, container.id])
        raise DeployError(f"{service} has no container", f"`jobctl status {self.job.name}` shows what runs")

    def _running(self, node: int | str) -> tuple[Site, SeenContainer]:
        """Return where the container of a node or service runs. Raises DeployError if it does not."""
        observed = self.observe()
        for host, seen in self._seen.items():
            for container in seen.containers:
                if node in (container.node, container.service) and container.running:
                    return self.sites[host], container
        raise self._not_running(node, observed)

    def _not_running(self, node: int | str, observed: Observed) -> DeployError:
        """Return why nothing of a node or service can be entered."""
        what, hint = (
            f"node {node}" if isinstance(node, int) else node,
            f"`jobctl status {self.job.name}` shows its nodes",
        )
        homes = {n.host for n in observed.nodes if n.node == node} | {
            s.host for s in observed.services if s.name == node
        }
        for host, error in self._down.items():
            if host in homes or not homes:  # where it is not known who has it, anybody may
                cause, may = getattr(error, "cause", error.message), "is" if homes else "may be"
                return HostError(
                    host, getattr(error, "code", "unreachable"), f"{what} {may} there: {cause}", error.hint
                )
        if not homes:
            return DeployError(f"job `{self.job.name}` has no {what}", hint)
        return NothingToEnter(f"{what} has no running container", hint)

    def strike(self, node: int, what: Victim) -> None:
        """SIGKILL the first process of a node, or its container, or play that its host is lost."""
        site, container = self._running(node)
        if what == "host":
            generation = control_of(self._seen).generation
            seconds = PLAYED + (generation.host_timeout if generation else 0.0)
            argv = ["sh", "-c", scripts.CUT, "sh", str(site.work), f"{seconds:.0f}"]
            checked(site.transport, argv, "play that it is lost")
            return
        if what == "container":
            site.containers.kill([container])
            return
        report = self._seen[site.host.name].reports.get(node) or {}
        pids = [process.get("pid") for process in objects(report.get("processes")) if process.get("state") == "running"]
        python = next(
            (n.container.python for n in (self.plan.nodes if self.plan else ()) if n.index == node), "python3"
        )
        kill = [python, "-c", "import os, sys; os.kill(int(sys.argv[1]), 9)", str(pids[0] if pids else "")]
        checked(site.transport, [*site.docker, "exec", container.id, *kill], f"kill a process of node {node}")

    def look_around(self, plan: Plan, node: Node, start: Start, argv: Sequence[str]) -> int:
        """Run a command in a container like that of `node`, with the terminal; what it needed is removed afterwards."""
        from jobctl.jobspec.deploy.targets.oneoff import look_around

        return look_around(self.sites[node.host.name], plan, node, start, argv)

    def fetch(self, into: Path) -> dict[str, int]:
        """Copy logs and outputs of all hosts that answer; those of a node lie in its folder."""
        self.observe()
        homes = [host for host, seen in self._seen.items() if seen.directories]
        outcome = self._on(homes, lambda site: site.collect(into))
        self._raise_if_all(outcome)
        self._down = {**self._down, **self._failures(outcome)}
        count = sum(outcome.done.values())
        return {"files": count, "hosts": sum(1 for files in outcome.done.values() if files)} if count else {}

    def close(self) -> None:
        """Let go of all connections."""
        for site in self.sites.values():
            site.transport.close()

    # All hosts side by side.

    def _on(self, hosts: Iterable[str], task: Callable[[Site], T]) -> Outcome[Site, T]:
        return fan_out([self.sites[host] for host in hosts if host in self.sites], task)

    def _failures(self, outcome: Outcome[Site, T]) -> dict[str, DeployError]:
        failures = {site.host.name: error for site, error in outcome.failed.items()}
        if self._held is not None:  # who is gone now is not waited for again by this command
            gone = {host: error for host, error in failures.items() if getattr(error, "code", "") in UNHEARD}
            self._held.failed |= gone
        return failures

    def _raise_if_all(self, outcome: Outcome[Site, T]) -> None:
        if outcome.failed and not outcome.done:
            raise next(iter(outcome.failed.values()))


def _apply_service(site: Site, step: Step) -> None:
    """Carry out a step about a service."""
    name = str(step.service)
    if step.kind in ("replace", "remove"):
        site.end(name, step.grace)
    if step.kind == "remove":
        site.remove([str(site.work / name), str(site.work / f"{name}.sh")])
    else:
        site.start_service(name)


def _directories(plan: Plan, site: Site) -> list[str]:
    """Return the directories that a host needs for its nodes and services of the job."""
    nodes = [f"node-{node.index}" for node in plan.nodes if node.host.name == site.host.name]
    services = [service.name for service in plan.services if service.host.name == site.host.name]
    return ["run/feeds", *nodes, *services, *(f"outputs/{path}" for path in (plan.code.outputs if plan.code else ()))]


def _died(site: Site, container: SeenContainer) -> HostError:
    code, text = site.containers.last_words(container)
    words = f": {text.splitlines()[-1]}" if text else ""
    return HostError(
        site.host.name,
        "container-died",
        f"the container of node {container.node} ended with code {code} before its launcher began{words}",
        "does the image have `python3`? `container.python` names another interpreter" if code in (126, 127) else None,
    )


def make_directory(site: Site, path: str) -> None:
    """Make a directory on a host."""
    checked(site.transport, ["mkdir", "-p", "--", path], f"make {path}")
