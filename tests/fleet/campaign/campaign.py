"""A job of real nodes that one thing after another happens to, and the page of what it survived.

Faults come one at a time, two within two seconds, and in the middle of a hand-over; between them users run commands. After
each the job has to train on by itself; at the end its loss must be, bit for bit, that of a run which nothing
disturbed, no node may ever have trained twice at a time, and `down` must leave nothing behind. With `notify` a webhook
must have been told of each failure, once or twice.

A campaign that is `alone` has its controller off from the first minute until the job has ended: faults are all that
happens then, and nobody helps.
"""

from __future__ import annotations

import collections
import contextlib
import math
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.campaign.listening import SPEC as NOTIFY
from tests.fleet.campaign.listening import VARIABLE, Hearing, Listener, heard
from tests.fleet.campaign.mishaps_alone import MishapsAlone
from tests.fleet.campaign.mishaps_rare import RareMishaps
from tests.fleet.campaign.starts import Starts
from tests.fleet.campaign.training import ALONE, NODES, SPEC, WORKS, Work, undisturbed
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.machine import ETCD_IMAGE
from tests.fleet.podman import fleet_of
from tests.tools.waiting import eventually
from tests.tools.webhook import served

TIMEOUT, ETCD_TIMEOUT = 5, 10  # host_timeout, in seconds; with etcd a leader must have been elected by then
RESTED = 40.0  # seconds that nodes get, before every other fault, until their standby is ready


@dataclass(frozen=True)
class JobKind:
    """The job of a campaign."""

    framework: str = "torch"
    elastic: bool = False
    etcd: bool = False
    notify: bool = False
    alone: bool = False
    engine: str = "docker"
    nodes: int = NODES

    @property
    def work(self) -> Work:
        """What its nodes do."""
        return WORKS[self.framework]

    @property
    def is_elastic(self) -> bool:
        """Whether it has a range of nodes, and no spare."""
        return self.elastic or self.work.regroups

    @property
    def with_etcd(self) -> bool:
        """Whether an etcd runs beside it."""
        return self.etcd or self.work.regroups


class Campaign(RareMishaps):
    """The job, and what can happen to it. `faults` counts what did."""

    how: tuple[str, ...] = ()  # further options of `up`

    def __init__(
        self,
        directory: Path,
        made: Fleet,
        seed: int,
        kind: JobKind,
        listener: Listener | None = None,
    ) -> None:
        work, etcd, elastic = kind.work, kind.with_etcd, kind.is_elastic
        self.timeout, self.patience = ETCD_TIMEOUT if etcd else TIMEOUT, work.patience
        # No framework is in the image: the environment that this runs in, or another, is mounted into the containers.
        spec = (work.spec + work.start + SPEC).replace("PACKAGES", str(made.lent(work.environment or "packages")))
        spec = spec.replace("TIMEOUT", str(self.timeout)).replace("HANG", str(work.hang))
        if etcd:
            spec += f"etcd: {{{{managed: {{{{replicas: 3, image: {ETCD_IMAGE}}}}}}}}}\n"
        if listener is not None:
            spec += NOTIFY
        self.etcd, self.elastic, self.regroups, self.listener = etcd, elastic, work.regroups, listener
        super().__init__(directory, made, spec.replace("NODES", f'"1:{kind.nodes}"' if elastic else str(kind.nodes)))
        (self.code / "counter.py").write_text(ALONE + work.train)
        lines = (self.code / "hosts.txt").read_text().splitlines()
        spares = [] if elastic else [lines[kind.nodes] + " spare"]
        (self.code / "hosts.txt").write_text("\n".join([*lines[: kind.nodes], *spares]) + "\n")
        if listener is not None:
            self.environ[VARIABLE] = listener.url
        self.chance = random.Random(seed)
        self.faults: collections.Counter[str] = collections.Counter()
        self.seconds, self.unwatched = list[float](), list[tuple[float, float]]()
        self.hearing: Hearing | None = None
        self.starts, self.until = Starts(), math.inf

    def run_all(self, count: int, only: str = "") -> None:
        """Let `count` faults happen, one after the other; `only`: none but those whose names have this in them."""
        up = self.up(*self.how)
        assert up.returncode == 0, up.stderr
        self.trains_on()
        try:
            with self.nobody_watching():
                self.play(count, only)
                self.end()
                eventually(self.has_ended)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.run('events').stdout}") from error
        self.finish()

    @contextlib.contextmanager
    def nobody_watching(self) -> Iterator[None]:
        """Change nothing: this job is watched."""
        yield

    def play(self, count: int, only: str) -> None:
        """Let the faults happen."""
        every = [*self.kinds(etcd=self.etcd), *([self.supervisor_killed_while_it_tells] if self.listener else [])]
        every = [*every, *(self.rare_alone() if self.how else self.rare())]
        kinds = [kind for kind in every if only in kind.__name__]
        for number in range(count):
            if time.monotonic() > self.until:
                break
            kind = self.chance.choice(kinds)
            self.rest()
            host, node = self.chance.choice(self.homes(trainers=kind == self.rank_stands_still))
            began = time.monotonic()
            try:
                kind(host, node)
                self.trains_on()
            except AssertionError as error:
                raise AssertionError(f"{number}: {kind.__name__} of node {node} on {host.name}: {error}") from error
            self.look_at_starts()
            self.faults[kind.__name__.replace("_", " ")] += 1
            self.seconds.append(time.monotonic() - began)
            print(f"{number:4}  {kind.__name__} of node {node} on {host.name}: {self.seconds[-1]:.1f} s", flush=True)
            assert not (self.checkpoints / "TWICE").exists(), (self.checkpoints / "TWICE").read_text()

    def rest(self) -> None:
        """Let standby be ready before every other fault, where there is one: some come while it imports, some after that."""
        if self.chance.random() < 0.5:
            with contextlib.suppress(AssertionError):
                eventually(self.is_rested, RESTED)

    def is_rested(self) -> bool:
        """Say whether all nodes have a standby, or none at all."""
        reports = self.reports()
        return reports != [] and all(one["standby"]["state"] != "warming" for one in reports)

    def look_at_starts(self) -> None:
        """Take over how nodes were started since the last fault."""
        self.starts.look([host.home for host in self.fleet.hosts], self.name)

    def has_ended(self) -> bool:
        """Say whether all nodes have ended well, as far as a job that is watched needs somebody to see that."""
        return True

    def finish(self) -> None:
        """See that it has ended well and leaves nothing."""
        done = self.run("wait", "--timeout", "300s", timeout=330)
        assert done.returncode == 0, f"{done.stderr}\n{self.run('events').stdout}"
        kept = (self.checkpoints / "checkpoint").read_text()
        assert kept == undisturbed(int(kept.split()[0]))
        assert not (self.checkpoints / "TWICE").exists()
        down = self.run("down")
        assert (down.returncode, [c for c in self.containers() if c], self.files()) == (0, [], []), down.stderr
        if self.listener is not None:
            log = self.directory / "state/jobs" / self.name / "events.jsonl"
            self.hearing = heard(log, self.listener.receipts, self.unwatched)
            assert not self.hearing.lost, "\n".join(self.hearing.lost)
            assert not self.hearing.often, self.hearing.often

    def supervisor_killed_while_it_tells(self, host: Host, node: int) -> None:
        """Kill it after the webhook has got a message, and before it has answered."""
        assert self.listener is not None
        told, where = threading.Event(), list[Path]()

        def interrupt() -> None:
            where.append(self.kill_supervisor())
            told.set()

        eventually(self.is_supervised)
        self.listener.interrupt = interrupt
        self.container_killed(host, node)
        assert told.wait(self.patience), "nobody is told that a container was killed"
        self.supervisor = self.start("supervise", JOBCTL_STATE_DIR=str(where[0]))

    def step(self) -> int:
        """The newest checkpoint."""
        path = self.checkpoints / "checkpoint"
        return int(path.read_text().split()[0]) if path.exists() else 0

    def trains_on(self) -> None:
        """Wait until it has made ten more steps."""
        step = self.step()
        try:
            eventually(lambda: self.step() >= step + 10, self.patience)
        except AssertionError:
            raise AssertionError(f"stuck at step {step}") from None


class CampaignAlone(MishapsAlone, Campaign):
    """The same with the controller off, from the first minute until the job has ended."""

    how = ("--no-supervise",)

    @contextlib.contextmanager
    def nobody_watching(self) -> Iterator[None]:
        """Take this machine off the hosts' network."""
        with self.without_controller():
            yield

    def has_ended(self) -> bool:
        """Say whether all nodes have ended well."""
        reports = self.reports()
        return reports != [] and all(one["state"] == "succeeded" for one in reports)


def campaign(
    seed: int,
    count: int,
    kind: JobKind,
    *,
    only: str = "",
    minutes: float = math.inf,
    hosts_of: Callable[[int], Fleet] | None = None,
) -> Campaign:
    """Run a campaign, on a fleet of its own unless there are hosts for it, and return it.

    No fault begins once it has run for so many minutes.
    """
    size = kind.nodes + (0 if kind.is_elastic else 1)
    with contextlib.ExitStack() as stack:
        lends = kind.work.lends()
        made = hosts_of(size) if hosts_of else stack.enter_context(fleet_of(kind.engine, size, lends))
        directory = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        listener = Listener() if kind.notify else None
        if listener is not None:
            stack.enter_context(served(listener))
        play = CampaignAlone if kind.alone else Campaign
        one = play(Path(directory), made, seed, kind, listener)
        one.until = time.monotonic() + 60 * minutes
        try:
            one.run_all(count, only)
        finally:
            if one.supervisor is not None and one.supervisor.poll() is None:
                one.supervisor.kill()
        return one
