"""Target `slurm`: one job in Slurm, whose launchers recover it inside its allocation.

No supervisor runs beside the allocation, so this is a `Handle` and no `Deployer`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.deploy.apply.deployer import AllUnreachable, Failures, FaultTarget
from jobctl.jobspec.deploy.host.logs import HostLogs
from jobctl.jobspec.deploy.logs.reader import Logs
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import DeployError, HostError, NothingToEnter
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.log_lines import LineSelection, Reader
from jobctl.jobspec.deploy.model.observed import SETTLED, Observed, phase
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.slurm.entering import entering, has_terminal
from jobctl.jobspec.deploy.slurm.events import AllocationEvents
from jobctl.jobspec.deploy.slurm.job_state import observed_job
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.looking import Looking, run_oneoff
from jobctl.jobspec.deploy.slurm.ports import AllocationPorts
from jobctl.jobspec.deploy.slurm.preflight import preflight
from jobctl.jobspec.deploy.slurm.queue import QueuePlace, SlurmLook
from jobctl.jobspec.deploy.store.archive import free_folder
from jobctl.jobspec.deploy.store.events import Events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import JobLock
from jobctl.jobspec.deploy.targets.background import end_supervisor
from jobctl.jobspec.plan.types import Plan

ASK_INTERVAL = 15.0  # seconds after which Slurm is asked again about a job whose allocation answers
KILL = 60.0  # seconds beyond the grace after which Slurm has to end what does not end itself
# Seconds beyond the grace within which the coordinator has followed an order, unless its machine is lost
ORDER_TIMEOUT = 20.0
CANCEL_TIMEOUT = 120.0  # seconds within which Slurm has to have let go of a job that was cancelled


class SlurmAllocation:
    """One job in Slurm, looked at and changed through a login node."""

    def __init__(self, job: JobDir, inventory: Inventory, work: str, plan: Plan | None = None) -> None:
        self.job = job
        self.plan = plan or job.plan()
        self.tell: Callable[[str], None] = lambda text: None
        self._lock = JobLock(job.lock)
        self.login = LoginNode(inventory, job.name, work, guard=self.check_here)
        self.inventory = inventory
        self.interval = 0.5
        self._failures: dict[str, DeployError] = {}
        self._look: SlurmLook | None = None
        self._asked = 0.0
        self._placed: tuple[str, float, QueuePlace | None] = ("", 0.0, None)  # of which job, when, and where it stood

    @property
    def failures(self) -> Failures:
        """Why the login node or Slurm did not answer when last observed."""
        return self._failures

    def places(self) -> tuple[str, ...]:
        """The login node."""
        return (self.login.name,)

    def has_files(self) -> bool:
        """Say whether there is a directory of the job, or a job in the queue, as last observed."""
        look = self._look
        return look is not None and (look.there or (look.entry is not None and not look.entry.over))

    def owners(self, observed: Observed) -> frozenset[str]:
        """Return the owner of the job."""
        return observed.owners

    def lock(self, command: str, *, break_it: bool = False) -> AbstractContextManager[object]:
        """Hold the job's lock while steps are applied: on this machine. Submitting has a lock of its own there."""
        return self._lock.hold(command, break_it=break_it)

    def check_here(self) -> None:
        """Raise LockLost if we have lost the lock on this machine."""
        self._lock.check()

    # Looking.

    def look(self) -> SlurmLook:
        """Look at the job: at its files, and into Slurm's queue unless a coordinator has said just now that it runs."""
        before = self._look.entry if self._look else None
        ask = before is None or not before.runs or time.monotonic() - self._asked > ASK_INTERVAL
        look = self.login.look(ask=ask)
        if not ask and look.is_fresh and before is not None and before.runs and look.known_id == before.job_id:
            look = replace(look, entry=before)
        elif not look.asked:
            look = self.login.look(ask=True)
        if look.asked:
            self._asked = time.monotonic()
        self._look = look
        # Slurm's controller serves everybody: it is asked less often than the job's own files are read.
        self.interval = 0.5 if look.entry is not None and look.entry.runs else 1.0
        return look

    def forget_look(self) -> None:
        """Look at the job, and into Slurm's queue, when it is observed next: something has changed."""
        self._look = None

    def look_anew(self) -> SlurmLook:
        """Look at the job, and into Slurm's queue. Raises HostError if Slurm does not tell how it is."""
        self.forget_look()
        look = self.look()
        self.refuse_silent()
        return look

    def refuse_silent(self) -> None:
        """Raise HostError if Slurm did not tell how the job is when last observed, whatever its own files say."""
        if self._look is not None and self._look.problem:
            raise self._silent(self._look.problem)

    def _silent(self, problem: str) -> HostError:
        message = f"Slurm does not say how job `{self.job.name}` is: {problem}"
        return HostError(self.login.name, "slurm-silent", message, "`sinfo` there shows whether Slurm answers")

    def observe(self) -> Observed:
        """Read how the job is. Raises AllUnreachable if the login node, or Slurm, does not tell."""
        try:
            look = self.look()
            if look.problem and not look.is_fresh:
                raise self._silent(look.problem)
        except HostError as error:
            self._failures = {self.login.name: error}
            self._look = None
            nothing = Observed(NOTHING, (), None, {self.login.name: error.message})
            raise AllUnreachable(self._failures, nothing, "") from error
        self._failures = {}
        return observed_job(self._with_place(look), self.plan)

    def _with_place(self, look: SlurmLook) -> SlurmLook:
        """Return a look that has the place of a job that waits: Slurm is asked for it less often, as it lists all that wait."""
        entry = look.entry
        if entry is None or not entry.waits:
            return look
        job_id, at, place = self._placed
        if job_id != entry.job_id or time.monotonic() - at > ASK_INTERVAL:
            place = None
            with suppress(HostError):
                place = self.login.place(entry.job_id)
            self._placed = entry.job_id, time.monotonic(), place
        return replace(look, entry=replace(entry, place=place))

    # Changing.

    def cancel(self, grace: float) -> None:
        """End the job: its processes with their grace, then its allocation. Returns once Slurm has let go of it.

        Raises HostError if that cannot be proved.
        """
        look = self.look_anew()
        entry = look.entry
        if entry is None or entry.over:
            return
        if entry.runs and look.is_fresh:
            self._stop(entry.job_id, grace)
        self._cancel_all()

    def _stop(self, job_id: str, grace: float) -> None:
        """Have the coordinator end the processes with their grace, unless the job has just ended by itself."""
        told = {} if self.plan is None else {"grace": grace}  # without a plan, only the allocation knows the job's own
        try:
            self.login.order(job_id, f"stop-{time.time()}", "stop", **told)
        except HostError as error:
            if error.code == "slurm-ended":
                return
            self.login.end_batch(job_id)  # there may be no room for an order, and to end the job makes some
        self._wait(
            lambda look: look.entry is None or look.entry.over or bool(look.allocation.get("result")), grace + KILL
        )

    def order(self, job_id: str, command: str, **more: object) -> None:
        """Have the coordinator begin a generation. Raises HostError if it has not done so in time.

        One that has no nodes yet takes note for its first generation. `more` is what the command needs: see `UserOrders` in
        the allocation.
        """
        before, identity = self._number() or 0, f"{command}-{time.time()}"
        self.login.order(job_id, identity, command, **more)
        limit = ORDER_TIMEOUT + (self.plan.stop_grace if self.plan else 0.0)
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            with suppress(HostError):  # the coordinator has the order, whether the login node answers now or not
                look = self.look()
                noted = self.seen("run/start.json").get("followed") == identity
                if (self._number() or 0) > before or (noted and look.allocation.get("state") == "starting"):
                    return
            self.tell("waiting until the allocation has begun the next generation")
            pause(self.interval)
        message = f"the allocation of job `{self.job.name}` has not begun the next generation within {limit:g} s"
        hint = "`jobctl status` says how the job is; the allocation follows the order as soon as it can"
        raise HostError(self.login.name, "slurm-order", message, hint)

    def _number(self) -> int | None:
        """Return the generation of the job, as last looked at."""
        generation = observed_job(self._look, self.plan).control.generation if self._look else None
        return generation.number if generation else None

    def note_stopped(self) -> None:
        """Write down that the user has stopped the job, where no coordinator has: one that waited has none."""
        look = self.look_anew()
        if look.there and not isinstance(look.allocation.get("result"), dict):
            result = {"phase": "stopped", "reason": "stopped by the user", "at": look.now, "exit_code": None}
            told = {"version": 1, "job_id": look.known_id, "state": "ended", "result": result}
            self.login.write("run/allocation.json", json.dumps(told).encode())

    def _cancel_all(self) -> None:
        """Cancel whatever Slurm has of the job, until it has nothing: a job may have submitted the next one."""
        deadline = time.monotonic() + CANCEL_TIMEOUT
        cancelled = None
        while (entry := self.look_anew().entry) is not None and not entry.over:
            if entry.job_id != cancelled and entry.state != "COMPLETING" and not self._ends_itself():
                self.login.cancel(entry.job_id)
                cancelled = entry.job_id
            if time.monotonic() > deadline:
                message = f"Slurm was told to end job {entry.job_id}, and it is still {entry.state}"
                hint = f"`scontrol show job {entry.job_id}` shows why; `jobctl down` again goes on"
                raise HostError(self.login.name, "slurm-not-gone", message, hint)
            self.tell(f"job {entry.job_id} is {entry.state}: waiting until Slurm has let go of it")
            pause(self.interval)

    def _ends_itself(self) -> bool:
        """Say whether the batch script is about to end with a result: cancelled, it would count as cancelled."""
        look = self._look
        return look is not None and look.result is not None and look.age is not None and look.age < KILL

    def _wait(self, holds: Callable[[SlurmLook], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not holds(self.look()) and time.monotonic() < deadline:
            self.tell(f"waiting for the processes to end; Slurm kills them in {deadline - time.monotonic():.0f} s")
            pause(self.interval)

    def take_down(self, grace: float) -> tuple[Path | None, Failures]:
        """End the job in Slurm, prove that, collect logs, and remove the job's directory."""
        into = None
        end_supervisor(self.job)
        try:
            self.cancel(grace)
            into = self._collect()
            self.login.erase()
        except HostError as error:
            return into, {self.login.name: error}
        return into, {}

    def _collect(self) -> Path | None:
        """Copy logs and outputs into this machine's history, and return where."""
        into = free_folder(self.job.history)
        return into if self.login.collect(into) else None

    # Looking into it.

    def preflight(self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False) -> list[Finding]:
        """Check whether the login node and Slurm take the job."""
        return preflight(self.login, plan)

    def logs(self, selection: LineSelection, last: int | None = None) -> Reader | None:
        """Return what reads the chosen logs, None if the job has no directory."""
        there = self.login.look(ask=False).there
        return Logs(HostLogs(lambda: [self.login.files]), selection, last) if there else None

    def events(self) -> Events:
        """Return what reads what happened: here, and in the allocation."""
        return AllocationEvents(self.login, self.job, lambda: self._look or self.login.look(ask=False))

    def enter(self, node: int | str, argv: Sequence[str]) -> int:
        """Run a command with what the first process of a node has, on its machine; return its exit code."""
        observed = self.observe()
        found = next((one for one in observed.nodes if one.node == node), None)
        if found is None or found.first_pid is None or observed.slurm is None:
            kind = DeployError if found is None else NothingToEnter
            message = f"job `{self.job.name}` has no node {node}" if found is None else f"node {node} is {found.state}"
            raise kind(message, f"`jobctl status {self.job.name}` shows its nodes")
        inside = entering(self.plan, self.login.work, found, found.first_pid)
        return self.login.enter((str(observed.slurm.job_id), found.host), [*inside, *argv], terminal=has_terminal())

    def run_oneoff(self, node: int, secrets: Mapping[str, str], hidden: Collection[str], argv: Sequence[str]) -> int:
        """Run a command with what a process of the plan's job would have; return its exit code.

        If the job runs, on the machine of a node; otherwise Slurm is asked for a machine. `hidden` are further variables of
        this process that are not for the command.
        """
        assert self.plan is not None
        observed = self.observe()
        found = observed.node(node)
        runs = self._look is not None and self._look.entry is not None and self._look.entry.runs
        job = str(observed.slurm.job_id) if observed.slurm else None
        place = (job, found.host) if runs and job and found is not None and found.host and found.reachable else None
        looking = Looking(self.inventory, self.login, self.plan, secrets, {*secrets, *hidden})
        return run_oneoff(looking, place, argv)

    def inject_fault(self, node: int, what: FaultTarget) -> None:
        """Kill a node's first process or its launcher, or have the coordinator not hear its machine for a while."""
        observed = self.observe()
        found = next((one for one in observed.nodes if one.node == node), None)
        if found is None or observed.slurm is None:
            raise NothingToEnter(f"node {node} does not run", f"`jobctl status {self.job.name}` shows its nodes")
        if what == "host":
            job_id = str(observed.slurm.job_id)
            self.login.order(job_id, f"drill-{time.time()}", "drill", host=found.host)
            return
        pid = (found.first_pid if what == "process" else None) or found.launcher
        code = self.enter(node, ["sh", "-c", f"kill -KILL {pid}"])
        if code not in (0, 137):  # it may take its own shell along
            raise DeployError(f"cannot kill process {pid} of node {node} on {found.host} (exit code {code})")

    def ports(self) -> AbstractContextManager[AllocationPorts]:
        """Return what connects to ports on the nodes of the allocation, through the login node."""
        return nullcontext(AllocationPorts(self.login, self.observe, self.plan))

    def fetch(self, into: Path) -> dict[str, int]:
        """Copy logs and outputs below `into`."""
        count = self.login.collect(into)
        return {"files": count} if count else {}

    def close(self) -> None:
        """Let go of the connection."""
        self.login.transport.close()

    def is_settled(self) -> bool:
        """Say whether the job has ended, or never began."""
        return phase(self.observe())[0] in SETTLED

    def seen(self, path: str) -> Json:
        """Return what is in a JSON file of the job's, as last observed."""
        return self._look.files.get(PurePosixPath(path), {}) if self._look else {}

    def sent(self) -> dict[str, Any]:
        """Return what was sent last, as last observed: the hash of each file, by its path."""
        return dict(self.seen("run/sent.json"))

    def begins_runs(self) -> bool:
        """Say whether the coordinator can begin a run with a checkpoint directory of its own, as last observed.

        That of an earlier version cannot, and its files do not know of such runs.
        """
        return "fresh" in self.seen("run/start.json")
