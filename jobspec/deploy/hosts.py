"""Targets `compose` and `ssh`: the nodes of a job as containers of other machines' Docker Engines.

Everything is done on all hosts side by side, and what fails on one is reported for it. Nothing is remembered here that
could not be read again: files and containers of the job lie on its hosts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from jobctl.jobspec.deploy import images, processes
from jobctl.jobspec.deploy.choosing import choose_generation
from jobctl.jobspec.deploy.code import pack_code
from jobctl.jobspec.deploy.collect import free_name
from jobctl.jobspec.deploy.control import Control, Ledger, age, ledger_json, newest, parse_control
from jobctl.jobspec.deploy.deployer import Failures, Start
from jobctl.jobspec.deploy.errors import DeployError
from jobctl.jobspec.deploy.fanout import Outcome, fan_out
from jobctl.jobspec.deploy.here import Here
from jobctl.jobspec.deploy.hostlock import Held, check, hold_on
from jobctl.jobspec.deploy.hostlogs import HostLogs
from jobctl.jobspec.deploy.jobdir import JobDir
from jobctl.jobspec.deploy.lock import break_lock, hold, read_holder
from jobctl.jobspec.deploy.logs import Source
from jobctl.jobspec.deploy.observed import Observed, ObservedNode, parse_node
from jobctl.jobspec.deploy.ports import used_ports
from jobctl.jobspec.deploy.preflight import Finding, Preflight
from jobctl.jobspec.deploy.reach import Reach, SshOptions
from jobctl.jobspec.deploy.reconcile import Step
from jobctl.jobspec.deploy.site import Seen, SeenContainer, Site
from jobctl.jobspec.deploy.ssh import Ssh
from jobctl.jobspec.deploy.transport import HostError, Transport, checked
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Generation, Node, Plan
from jobctl.jobspec.render.artefact import Artefact, control_json, folder, hashes, render
from jobctl.jobspec.render.shell import Look, look_script
from jobctl.jobspec.spec.hosts import Host

START_TIMEOUT = 60.0  # seconds within which a started launcher reports
LOOK = 0.2  # seconds between two looks at what is waited for

T = TypeVar("T")


def transport_to(host: Host, options: SshOptions) -> Transport:
    """Return the connection to a host, not open yet."""
    return Here(host.name) if host.local else Ssh(host, options)


class Hosts:
    """The deployer of one job on other machines (and on this one, where the hosts file says `localhost`)."""

    interval = 1.0  # one command and one request of the engine's on every host

    def __init__(self, job: JobDir, target: Literal["compose", "ssh"], reach: Reach, plan: Plan | None = None) -> None:
        self.job, self.plan, self.reach = job, plan or job.plan(), reach
        self.sites = {h.name: Site(h, transport_to(h, reach.ssh), job.name, target) for h in reach.hosts}
        self._held: Held | None = None
        self._seen: Mapping[str, Seen] = {}
        self._down: dict[str, DeployError] = {}

    def where(self) -> tuple[str, ...]:
        """Return the names of all hosts that the job may be on."""
        return tuple(self.sites)

    def has_files(self) -> bool:
        """Say whether a host has a work directory of the job, as last observed."""
        return any(seen.there for seen in self._seen.values())

    # Observing.

    def observe(self) -> Observed:
        """Read what runs now from all hosts. Raises the first host's error if none answers."""
        # A host that could not even be locked a moment ago would cost its whole timeout once more.
        known = dict(self._held.failed) if self._held else {}
        outcome = fan_out([site for host, site in self.sites.items() if host not in known], Site.observe)
        failed = {**known, **{site.host.name: error for site, error in outcome.failed.items()}}
        if failed and not outcome.done:
            self._seen, self._down = {}, failed
            raise AllUnreachable(failed, self._observed({}, failed))
        self._seen = {site.host.name: seen for site, seen in outcome.done.items()}
        self._down = failed
        return self._observed(self._seen, failed)

    @property
    def failures(self) -> Failures:
        """Why hosts did not answer when last observed."""
        return self._down

    def _observed(self, seen: Mapping[str, Seen], failed: Failures) -> Observed:
        control = newest(parse_control(one.control, one.ledger) for one in seen.values())
        homes = self._homes(control)
        found = [node for host, one in seen.items() for node in _nodes(host, one)]
        chosen: dict[int, ObservedNode] = {}
        for node in sorted(found, key=lambda node: (node.host == homes.get(node.node), node.alive)):
            chosen[node.node] = node
        strays = tuple(node for node in found if chosen[node.node] is not node)
        for index, host in homes.items():
            if index not in chosen and host in failed:
                reason = f"{host} cannot be reached"
                chosen[index] = ObservedNode(index, "trainer", host, "lost", reason=reason, reachable=False)
        members = {m.host for m in control.generation.members} if control.generation else set()
        return Observed(
            control,
            tuple(chosen[index] for index in sorted(chosen)),
            supervised=bool(read_holder(self.job.supervisor_lock)) or any(one.supervised for one in seen.values()),
            unreachable={host: error.message for host, error in failed.items()},
            outdated=tuple(sorted(host for host in members & set(seen) if _is_outdated(seen[host], control))),
            strays=strays,
            owners=frozenset(c.owner for one in seen.values() for c in one.containers if c.owner),
        )

    def _homes(self, control: Control) -> dict[int, str]:
        """Return which host each node belongs on: as the generation has it, or else the plan."""
        planned = {node.index: node.host.name for node in self.plan.nodes} if self.plan else {}
        joined = {m.node: m.host for m in control.generation.members} if control.generation else {}
        return planned | joined

    def preflight(self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False) -> list[Finding]:
        """Check whether hosts are fit for the job; finds everything that is wrong, and changes nothing."""
        return Preflight([self.sites[host] for host in self.sites if host in set(hosts)], plan, deep=deep).run()

    # What is wanted.

    def hashes(self, plan: Plan) -> Mapping[int, str]:
        """Return what identifies each node's artefact."""
        return hashes(plan)

    # Whose turn it is.

    @contextlib.contextmanager
    def lock(self, command: str, *, break_it: bool = False) -> Iterator[None]:
        """Hold the job's lock, here and on all hosts that can be reached, while steps are applied."""
        if break_it:
            break_lock(self.job.lock)
        with (
            hold(self.job.lock, command),
            hold_on(list(self.sites.values()), "lock", command, break_it=break_it) as held,
        ):
            self._held = held
            try:
                yield
            finally:
                self._held = None

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Be the job's only supervisor, wherever others may be started."""
        with (
            hold(self.job.supervisor_lock, "supervise", wait=0.0),
            hold_on(list(self.sites.values()), "supervisor.lock", "supervise", wait=0.0),
        ):
            yield

    # Changing.

    def prepare(self, plan: Plan, start: Start) -> Failures:
        """Put artefacts, code, secrets and images in place on the hosts of the plan; what runs is not touched by that."""
        check(self._held)
        self.plan = plan
        files = self._artefacts(plan)
        code = pack_code(plan) if plan.code else None
        names = sorted({name for node in plan.nodes for name in node.launch.secrets})
        secrets = {name: start.secrets[name] for name in names}

        def send(site: Site) -> None:
            nodes = [node for node in plan.nodes if node.host.name == site.host.name]
            directories = ["run", *(f"node-{node.index}" for node in nodes)]
            outputs = [f"outputs/{path}" for path in (plan.code.outputs if plan.code else ())]
            site.send(files[site.host.name], [*directories, *outputs], secrets=bool(secrets))
            if code is not None:
                code.send(site)
            site.send_secrets(secrets)
            if plan.checkpoint:
                make_directory(site, plan.checkpoint.dir)
            if nodes[0].container.pull != "never":  # then whatever starts the container says so
                images.ensure(site, nodes[0].container)

        homes = {node.host.name for node in plan.nodes} - set(self._down)
        return self._failures(self._on(homes, send))

    def _artefacts(self, plan: Plan) -> dict[str, list[Artefact]]:
        """Return the files of each host: its own folder of what `render` prints, and the launcher."""
        found: dict[str, list[Artefact]] = {node.host.name: [] for node in plan.nodes}
        folders = {folder(host): host for host in found}
        for artefact in render(plan, first_generation(plan)):
            where, slash, path = artefact.path.partition("/")
            if slash:
                found[folders[where]].append(replace(artefact, path=path))
            elif artefact.path == "launcher.py":
                for files in found.values():
                    files.append(artefact)
        return found

    def apply(self, steps: Sequence[Step]) -> Failures:
        """Carry out steps about nodes, and hand-overs, on each host in their order."""
        check(self._held)
        todo = {host: [step for step in steps if step.host == host] for host in {step.host for step in steps}}
        outcome = self._on(todo, lambda site: self._apply_on(site, todo[site.host.name]))
        started = {host: nodes for site, nodes in outcome.done.items() if nodes for host in [site.host.name]}
        return self._failures(outcome) | self._settle(started)

    def _apply_on(self, site: Site, steps: Sequence[Step]) -> set[int]:
        """Carry out the steps of one host; return the nodes whose launchers were started."""
        seen = self._seen.get(site.host.name)
        reports = seen.reports if seen else {}
        started = set()
        for step in steps:
            if step.node is None:
                self._hand_over(site)
                continue
            if step.kind != "start" or seen is None or any(c.node == step.node for c in seen.containers):
                site.end(step.node, step.grace)
            if step.kind == "remove":
                site.forget(step.node)
            if step.kind in ("replace", "start"):
                site.announce(step.node, reports.get(step.node))
                site.start(step.node)
                started.add(step.node)
        return started

    def _hand_over(self, site: Site) -> None:
        control = newest(parse_control(one.control, one.ledger) for one in self._seen.values())
        if control.generation is not None:
            site.begin(ledger_json(control.ledger), control_json(control.generation))

    def _settle(self, started: Mapping[str, set[int]]) -> dict[str, DeployError]:
        """Wait until every launcher that was started reports; return why others did not."""

        def settle(site: Site) -> None:
            deadline = time.monotonic() + START_TIMEOUT
            waiting = set(started[site.host.name])
            while waiting:
                seen = site.observe()
                for container in seen.containers:
                    if container.node in waiting and not container.running and not _has_ended(seen, container.node):
                        raise _died(site, container)
                waiting = {node for node in waiting if seen.reports.get(node, _BLANK)["state"] in ("launching", "")}
                if waiting and time.monotonic() > deadline:
                    node = min(waiting)
                    raise HostError(
                        site.host.name,
                        "launcher-silent",
                        f"the launcher of node {node} says nothing",
                        f"`docker logs jobctl-{self.job.name}-{node}` there",
                    )
                if waiting:
                    time.sleep(LOOK)

        return self._failures(self._on(started, settle))

    def stop_processes(self, grace: float) -> None:
        """End all processes of the job, at the same time on all nodes; the launchers stay."""
        self.command("stop", grace)
        self._until(lambda node: node.state not in ("starting", "running"), grace + 2)

    def next_generation(self, plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node]) -> Generation:
        """Return the generation after `last` (the first, if None) with a port that is free on its first host."""
        first = self.sites[min(nodes, key=lambda node: node.index).host.name]
        taken = used_ports(first)
        return choose_generation(plan, last, grace, nodes, lambda address, port: port not in taken, first.host.name)

    def begin(self, generation: Generation, ledger: Ledger) -> Failures:
        """Hand a generation to the launchers; the ledger goes first, see control.py."""
        check(self._held)
        self.plan = self.plan or self.job.plan()
        homes = {member.host for member in generation.members}

        def hand_over(site: Site) -> None:
            site.begin(ledger_json(ledger), control_json(generation))

        return self._failures(self._on(homes, hand_over))

    def keep(self, ledger: Ledger) -> None:
        """Keep what recovery has to remember, on all hosts of the job."""
        check(self._held)
        homes = [host for host, seen in self._seen.items() if seen.control is not None or seen.directories]
        self._raise_if_all(self._on(homes, lambda site: site.hand_over("ledger.json", ledger_json(ledger), 0o600)))

    def command(self, verb: Literal["stop", "finish"], grace: float) -> None:
        """Tell all launchers to `stop` (and stay) or to `finish` (and exit)."""
        check(self._held)
        generation = self.observe().control.generation
        if generation is None:
            return
        content = control_json(replace(generation, command=verb, grace=grace))
        homes = [host for host, seen in self._seen.items() if seen.directories]
        self._raise_if_all(self._on(homes, lambda site: site.hand_over("control.json", content)))

    def finish(self, grace: float) -> None:
        """End all processes and all launchers; the containers stay, so that it can be seen how they ended."""
        self.command("finish", grace)
        self._until(lambda node: not node.alive, grace + 2)
        running = {host: [c for c in seen.containers if c.running] for host, seen in self._seen.items()}
        self._on(
            [host for host, containers in running.items() if containers],
            lambda site: [site.client.kill(container.id) for container in running[site.host.name]],
        )

    def _until(self, done: Callable[[ObservedNode], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not all(done(node) for node in self.observe().nodes if node.reachable and node.alive):
            if time.monotonic() > deadline:
                return
            time.sleep(LOOK)

    def end_supervisor(self) -> None:
        """End the supervisor of the job that runs on this machine, if one does."""
        end_process(read_holder(self.job.supervisor_lock))

    def take_down(self, grace: float) -> tuple[Path | None, Failures]:
        """End everything, fetch the logs, and remove all of the job on each host that can be reached."""
        into = free_name(self.job.history / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ"))
        with contextlib.suppress(AllUnreachable):
            self.finish(grace)

        def remove(site: Site) -> bool:
            containers = site.containers()
            site.stop_containers(containers, grace)
            count = site.collect(into)
            site.remove_containers(containers)
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

    def source(self) -> Source | None:
        """Return where the job's logs are read, None if no host has any of it."""
        self.observe()
        homes = [self.sites[host] for host, seen in self._seen.items() if seen.directories]
        return HostLogs(homes) if homes else None

    def enter(self, node: int, argv: Sequence[str]) -> int:
        """Run a command inside of a node's container."""
        self.observe()
        for host, seen in self._seen.items():
            for container in seen.containers:
                if container.node == node and container.running:
                    site = self.sites[host]
                    flags = ["-i", "-t"] if sys.stdin.isatty() and sys.stdout.isatty() else ["-i"]
                    return site.transport.interact([*site.docker, "exec", *flags, container.id, *argv])
        raise DeployError(f"node {node} has no running container", f"`jobctl status {self.job.name}` shows its nodes")

    def look_around(self, plan: Plan, node: Node, start: Start, argv: Sequence[str]) -> int:
        """Run a command in a container like that of `node`, with the terminal; what it needed is removed afterwards."""
        site = self.sites[node.host.name]
        was_there = site.observe().there
        code = pack_code(plan)
        outputs = [f"outputs/{path}" for path in (plan.code.outputs if plan.code else ())]
        try:
            site.send([], outputs, secrets=bool(node.launch.secrets))
            if code is not None:
                code.send(site)
            site.send_secrets({name: start.secrets[name] for name in node.launch.secrets})
            images.ensure(site, node.container)
            flags = ("-i", "-t") if sys.stdin.isatty() and sys.stdout.isatty() else ("-i",)
            look = Look(code=True, secrets=True, flags=flags)
            name = f"jobctl-{plan.job}-run-{os.getpid()}"
            script = look_script(plan, node, name, str(site.work), _with_secrets(node, argv), look)
            return site.interact_script(script)
        finally:
            if not was_there:
                site.erase([container.image for container in site.containers()])

    def fetch(self, into: Path) -> list[str]:
        """Copy logs and outputs of all hosts that answer; those of a node lie in its folder."""
        self.observe()
        homes = [host for host, seen in self._seen.items() if seen.directories]
        outcome = self._on(homes, lambda site: site.collect(into))
        self._raise_if_all(outcome)
        self._down.update(self._failures(outcome))
        count = sum(outcome.done.values())
        return [f"{count} file{'' if count == 1 else 's'} of {len(outcome.done)} hosts"] if count else []

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
            gone = {host: error for host, error in failures.items() if getattr(error, "code", "") in _GONE}
            self._held.failed |= gone
        return failures

    def _raise_if_all(self, outcome: Outcome[Site, T]) -> None:
        if outcome.failed and not outcome.done:
            raise next(iter(outcome.failed.values()))


class AllUnreachable(HostError):
    """Not a single host answers; `failures` says why, for each, and `observed` that nothing is known."""

    def __init__(self, failures: Failures, observed: Observed) -> None:
        host = next(iter(failures))
        super().__init__(host, "unreachable", "no host answers")
        self.message = "no host answers"
        self.failures, self.observed = failures, observed


_BLANK = {"state": ""}
_GONE = ("lost", "unreachable", "silent", "connection-refused")


def _nodes(host: str, seen: Seen) -> Iterator[ObservedNode]:
    """Yield the nodes on one host, each from its container and what its launcher reported."""
    containers: dict[int, SeenContainer] = {}
    for container in sorted(seen.containers, key=lambda container: container.running):
        containers[container.node] = container
    for index in sorted({*containers, *seen.reports, *seen.directories}):
        if index < 0:
            continue
        found = containers.get(index)
        alive = 1 if found is not None and found.running else None
        role = found.role if found else "trainer"
        node = parse_node(index, role, host, seen.reports.get(index), alive, found.artefact if found else None)
        yield replace(node, container=found.id if found else None)


def _with_secrets(node: Node, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the argv that runs `argv` with the values of secrets, which are in a file."""
    if not node.launch.secrets:
        return tuple(argv)
    load = (
        "import json, os, sys; os.environ.update(json.load(open('/jobctl/secrets/secrets.json')));"
        " os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return (node.container.python, "-c", load, *argv)


def _is_outdated(seen: Seen, control: Control) -> bool:
    mine = parse_control(seen.control, None).generation
    return control.generation is not None and (mine is None or age(mine) < age(control.generation))


def _has_ended(seen: Seen, node: int) -> bool:
    return seen.reports.get(node, _BLANK)["state"] in ("succeeded", "failed", "stopped")


def _died(site: Site, container: SeenContainer) -> HostError:
    code, text = site.last_words(container)
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


def end_process(holder: Mapping[str, object]) -> None:
    """End the process that holds a lock on this machine: SIGTERM, 5 seconds, SIGKILL."""
    pid, ticks = holder.get("pid"), holder.get("start_ticks")
    if not isinstance(pid, int) or not isinstance(ticks, int):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 5
    while processes.alive(pid, ticks):
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
