"""All hosts of one job, side by side: what was last seen of each, who does not answer, and whose turn it is.

Nothing is remembered here that could not be read again: files and containers of the job are on its hosts. On target
`local` this machine is the only host, and its nodes are processes.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Generic

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable, Failures, Feed
from jobctl.jobspec.deploy.model.control import Control, kept_control, newest
from jobctl.jobspec.deploy.model.errors import UNHEARD, DeployError, UnlistedHost
from jobctl.jobspec.deploy.model.host_state import HostState, control_of, merge, unreadable
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.spare_state import SpareState, idle_spare
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import JobLock, Locked, break_lock, hold, read_holder
from jobctl.jobspec.deploy.targets.job_on_host import Followed, J, Together
from jobctl.jobspec.deploy.transport.fanout import MAX_PARALLEL, Outcome, T, after_left, failures_of
from jobctl.jobspec.deploy.transport.live_fanout import LiveFanOut
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.plan.types import Plan

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.lock import Held

STEPS_ASIDE = 60.0  # seconds within which another supervisor leaves a job that was changed from here


class Fleet(Generic[J]):
    """The hosts of one job. `seen` and `down` say how they looked when last observed."""

    def __init__(
        self, job: JobDir, inventory: Inventory, host_jobs: Iterable[J], together: Together[J], plan: Plan | None
    ) -> None:
        self.job, self.inventory, self.plan, self._together = job, inventory, plan, together
        self.keeps_run = together.keeps_run
        self.host_jobs: Mapping[str, J] = {host_job.host.name: host_job for host_job in host_jobs}
        self.seen: Mapping[str, HostState] = {}
        self.down: Failures = {}
        # The newest generation and ledger that were ever begun or seen: the hosts that have them may be gone.
        self.known: Control | None = None
        self._began: dict[str, float] = {}  # when the job was brought up that hosts were last seen to have
        self._held: Held | None = None
        self._here = JobLock(job.lock)
        self._turn = contextlib.ExitStack()  # the locks that are held
        self._following: Followed | None = None
        self._silent: dict[str, DeployError] = {}  # hosts that do not answer, and are not asked again
        self._live: LiveFanOut | None = None

    def connect(self) -> None:
        """Connect to the hosts that are asked first, in the background."""
        for host_job in itertools.islice(self.host_jobs.values(), MAX_PARALLEL):
            host_job.transport.preconnect()

    def close(self) -> None:
        """Close all connections."""
        for host_job in self.host_jobs.values():
            host_job.transport.close()

    # Observing.

    def observe(self) -> Observed:
        """Read what runs now from all hosts. Raises the first host's error if none answers."""
        # A host that could not even be locked a moment ago would cost its whole timeout once more.
        known = {**self._silent, **(self._held.failed if self._held else {})}
        asked = [host_job for host, host_job in self.host_jobs.items() if host not in known]
        outcome = (self._live or self._together).on_each(asked, self._look)
        failed = {**known, **failures_of(outcome)}
        if failed and not outcome.done:
            self.seen, self.down = {}, failed
            raise AllUnreachable(failed, self.merge({}, failed))
        self.seen = {host_job.host.name: seen for host_job, seen in outcome.done.items()}
        self.down = failed | unreadable(self.seen)
        return self.merge(self.seen, failed)

    def look_on(self) -> None:
        """From now on, let no look wait for a host that is silent: see LiveFanOut."""
        self._live = self._live or LiveFanOut(lambda host_job: str(host_job.host.name))
        for host_job in self.host_jobs.values():
            host_job.look_on()

    def newest(self) -> Control:
        """Return the newest generation and ledger. This command waits no more for a host that did not answer."""
        outcome = self._together.on_each(self.host_jobs.values(), lambda host_job: host_job.control())
        if outcome.done:
            self._silent = failures_of(outcome)
        return newest(outcome.done.values())

    def _look(self, host_job: J) -> HostState:
        """Read what is on a host. While it is followed, launchers are believed where its engine does not answer."""
        following = self._following
        return host_job.observe() if following is None else following.look(host_job.host.name)

    def merge(self, seen: Mapping[str, HostState], failed: Failures) -> Observed:
        """Return the one picture that hosts make, of which some have `failed` to answer."""
        planned = homes_of(self.plan)
        self._forget_what_is_over(seen)
        failed = {**failed, **self._unknown(seen, failed)}
        unreachable = {host: error.message for host, error in failed.items()}
        supervised = bool(read_holder(self.job.supervisor_lock))
        before = self.known if failed else None
        services = {service.name: service.host.name for service in self.plan.services} if self.plan else {}
        observed = merge(seen, unreachable, planned, supervised=supervised, before=before, services=services)
        self.known = observed.control
        return replace(observed, changing=self.job.is_changing(), spares=self._spares(seen, observed, planned))

    def _forget_what_is_over(self, seen: Mapping[str, HostState]) -> None:
        """Forget what is known of a job that was taken down since, and brought up again.

        The clock of the machine that did so may be behind: then the job seems to have begun earlier. But a host goes back
        to an earlier beginning in no other way.
        """
        known = self.known.generation if self.known is not None else None
        began = {host: one.control.generation.began for host, one in seen.items() if one.control.generation is not None}
        if known is not None and any(self._began.get(host) == known.began != at for host, at in began.items()):
            self.known = None
        self._began |= began

    def _unknown(self, seen: Mapping[str, HostState], failed: Failures) -> Failures:
        """Return the hosts of the generation that are not known here: another machine has brought the job to them.

        Nobody here can look there, so they count as hosts that do not answer.
        """
        homes = set(control_of(seen, self.known if failed else None).placement.values()) - set(self.host_jobs)
        words, hint = (
            f"job `{self.job.name}` runs there, and it is not among the hosts that are known here",
            "`--hosts` names all",
        )
        found = {host: UnlistedHost(host, words, hint) for host in sorted(homes)}
        self.down = {**self.down, **found}
        return found

    def _spares(
        self, seen: Mapping[str, HostState], observed: Observed, planned: Mapping[int, str]
    ) -> tuple[SpareState, ...]:
        """Return how the spare hosts are that have no node."""
        homes = {*planned.values(), *observed.control.placement.values()}
        states = {
            host.name: idle_spare(host.name, one.containers, one.spare)
            if (one := seen.get(host.name)) is not None and host.name not in observed.unreachable
            else SpareState(host.name, "unreachable")
            for host in self.inventory.hosts
            if host.name not in homes
        }
        spare = {host.name for host in self.inventory.hosts if host.spare} - {*self.inventory.left}
        # Where the hosts file has no spare any more, a launcher may still wait.
        return tuple(one for host, one in states.items() if host in spare or one.artefact is not None)

    def homes(self) -> set[str]:
        """Return the hosts that nodes, services and spares have by the plan or by the newest generation that is known."""
        known = {*self.known.placement.values()} if self.known is not None else set()
        if self.plan is not None:
            known |= {node.host.name for node in (*self.plan.nodes, *self.plan.spares)}
            known |= {service.host.name for service in self.plan.services}
        return known

    def hosts_with_nodes(self) -> list[str]:
        """Return the hosts that have a directory of a node, as last observed."""
        return [host for host, seen in self.seen.items() if seen.directories]

    def hosts_with_files(self) -> list[str]:
        """Return the hosts that have a work directory of the job, as last observed."""
        return [host for host, seen in self.seen.items() if seen.there]

    def hosts_with_launchers(self) -> list[str]:
        """Return the hosts whose launchers get orders, those of spares too, as last observed."""
        return [host for host, seen in self.seen.items() if seen.directories or seen.spare is not None]

    def planned_hosts(self) -> list[str]:
        """Return the hosts of the plan (all, where it is not known) that answered when last observed."""
        homes = {node.host.name for node in self.plan.nodes} if self.plan else set(self.host_jobs)
        return [host for host in self.host_jobs if host in homes and host not in self.down]

    # Whose turn it is.

    @contextlib.contextmanager
    def lock(self, command: str, *, break_it: bool = False) -> Iterator[None]:
        """Hold the job's lock, here and on all hosts that can be reached."""
        if break_it:
            break_lock(self.job.lock)
        with contextlib.ExitStack() as self._turn:
            self._turn.enter_context(self._lock(command, break_it=break_it))
            yield

    @contextlib.contextmanager
    def let_in(self, command: str) -> Iterator[None]:
        """Let others have the job's lock for the length of the block; a supervisor leaves a change to this command still."""
        with hold(self.job.waiting_lock, command):
            self._turn.close()
            yield
            self._turn.enter_context(self._lock(command, stay=True))

    @contextlib.contextmanager
    def _lock(self, command: str, *, break_it: bool = False, stay: bool = False) -> Iterator[None]:
        heard = [host_job for host, host_job in self.host_jobs.items() if host not in self._silent]
        locks = contextlib.ExitStack()
        try:
            locks.enter_context(self._here.hold(command))
            held = locks.enter_context(self._together.lock(heard, command, break_it=break_it, stay=stay))
            if held is not None:
                held.failed |= self._silent
            locks.callback(setattr, self, "_held", None)
            self._held = held
            yield
        finally:
            after_left(locks.close)

    def check_here(self) -> None:
        """Raise LockLost if we have lost the lock on this machine. Hosts are not asked."""
        self._here.check()

    def check_lock(self) -> None:
        """Raise DeployError if we have lost the lock: then somebody else may change the job by now."""
        self.check_here()
        if self._held is not None:
            self._held.check()

    def check_lock_on(self, host: str) -> None:
        """Raise DeployError if we have lost the lock here or on a host: then somebody else may be at work there by now."""
        self.check_here()
        if self._held is not None:
            self._held.check_on(host)

    def not_locked(self) -> Failures:
        """Return why some hosts could not be locked: no file is removed there, and folders may not even be ours."""
        held = self._held
        return {host: error for host, error in held.failed.items() if host not in held.channels} if held else {}

    @contextlib.contextmanager
    def follow(self) -> Iterator[Feed]:
        """Be the job's only supervisor, wherever others may be started: launchers are answered."""
        last, ledger, previous = self.job.kept_run()
        newest = kept_control(last, ledger)
        with hold(self.job.supervisor_lock, "supervise", wait=0.0):
            following = self._follow_in_turn(newest.generation, kept_control(previous).generation)
            self.known = self.known or newest
            self._following = following
            try:
                yield following.feed(self._heard)
            finally:
                self._following = None
                self._silent = {}  # as last heard: what looks from now on asks all hosts
                following.close()

    def _follow_in_turn(self, newest: Generation | None, previous: Generation | None) -> Followed:
        """Return what follows the hosts. Raises Locked if somebody else does.

        A supervisor elsewhere steps aside once it has seen that this machine has made the job another one.
        """
        mine = newest is not None and newest.origin is not None and newest.origin.id == self.job.id
        deadline = time.monotonic() + (STEPS_ASIDE if mine else 0.0)
        while True:
            detector = FailureDetector(time.monotonic, token_hex(4), previous=previous)
            following = self._together.following(self.job, list(self.host_jobs.values()), detector)
            try:
                following.start()
                return following
            except Locked:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(1.0)

    def _heard(self, seen: Mapping[str, HostState], silent: Failures) -> Observed:
        """Return the job as heard of. The next step does not wait for hosts that are silent."""
        self._silent, self.down, self.seen = dict(silent), {**silent, **unreadable(seen)}, seen
        if not seen:
            raise AllUnreachable(silent, self.merge({}, silent))
        return self.merge(seen, silent)

    # All hosts side by side.

    def chosen(self, hosts: Iterable[str]) -> tuple[list[J], list[J]]:
        """Return the job's place on each of `hosts`, and on all others that have answered when last observed."""
        wanted = set(hosts)
        others = [one for host, one in self.host_jobs.items() if host not in wanted | set(self.down)]
        return [one for host, one in self.host_jobs.items() if host in wanted], others

    def on_each(self, hosts: Iterable[str], task: Callable[[J], T]) -> Outcome[J, T]:
        """Do `task` on all `hosts` of the job at the same time."""
        return self._together.on_each([self.host_jobs[host] for host in hosts if host in self.host_jobs], task)

    def failures(self, outcome: Outcome[J, T]) -> dict[str, DeployError]:
        """Return why hosts failed, by their names."""
        failures = failures_of(outcome)
        if self._held is not None:  # this command waits no more for a host that is gone now
            gone = {host: error for host, error in failures.items() if error.code in UNHEARD}
            self._held.failed |= gone
        return failures


def raise_if_all(outcome: Outcome[J, T]) -> None:
    """Raise the first host's error if not a single host did it."""
    if outcome.failed and not outcome.done:
        raise next(iter(outcome.failed.values()))
