"""A job's place on the login node: its directory, which all nodes of the cluster see, and Slurm's commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex

from jobctl.jobspec.deploy.host.collecting import collect
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS as ON_HOSTS
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.untrusted import Json, parse_object
from jobctl.jobspec.deploy.sending.send_code import Package
from jobctl.jobspec.deploy.slurm.problems import has_ended, slurm_error, written_there
from jobctl.jobspec.deploy.slurm.queue import QueuePlace, SlurmLook, read_look, read_place
from jobctl.jobspec.deploy.slurm.scripts import SCRIPTS
from jobctl.jobspec.deploy.slurm.sessions import ends_here
from jobctl.jobspec.deploy.slurm.variables import of_other_steps
from jobctl.jobspec.deploy.targets.gathering import MAX_FILE_BYTES
from jobctl.jobspec.deploy.targets.host_fleet import transport_to
from jobctl.jobspec.deploy.transport.base import Result, Transport, checked, put
from jobctl.jobspec.deploy.transport.ending import ended_by_signals
from jobctl.jobspec.render.artefact import Artefact
from jobctl.jobspec.render.slurm import mark

SESSION_MARK = "JOBCTL_SESSION"  # a variable by which the `srun` of a command is found again
NOT_TOLD = 75  # what submit.sh ends with where Slurm does not say whether it has the job


class LoginNode:
    """The login node of one job. Every method raises HostError, and says what could not be done.

    `guard` is called before anything is changed there; what it raises keeps that from being done.
    """

    def __init__(
        self,
        inventory: Inventory,
        job: str,
        work: str,
        transport: Transport | None = None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        host = inventory.hosts[0]
        self.job, self.work, self.mark = job, work, mark(work)
        self.files = HostJob(host, transport or transport_to(host, inventory.ssh), job, "ssh")
        self.files.use_directories(work, work)  # there is one directory, and all nodes see it
        self.transport, self._guard = self.files.transport, guard

    @property
    def name(self) -> str:
        """The login node's name."""
        return self.transport.host

    def command(self, *argv: str) -> Result:
        """Run a command of Slurm's, whatever its user has set for it."""
        return self.transport.run(SCRIPTS.argv("command", *argv))

    def look(self, *, ask: bool) -> SlurmLook:
        """Read the job's files, and with `ask` what Slurm says of it."""
        argv = SCRIPTS.argv("look", self.work, self.job, "all" if ask else "files")
        return read_look(checked(self.transport, argv, "look at the job"), self.mark)

    def place(self, job_id: str) -> QueuePlace | None:
        """Return the place of a job that waits in the queue, None if Slurm does not tell."""
        result = self.transport.run(SCRIPTS.argv("place", job_id))
        return read_place(result.out.decode("utf-8", "replace"), job_id) if result.code == 0 else None

    def submit(self, hidden: Iterable[str], sent: bytes) -> tuple[str, bool]:
        """Have Slurm run the batch script, unless it has the job; return its number, and whether it is new.

        `hidden` are variables that are not for Slurm: it keeps the environment of a job where others may read it. `sent` is
        what `run/sent.json` says of a new one; nothing: what it says already.
        """
        self._guard()
        argv = SCRIPTS.argv("submit", self.work, self.job, self.mark, *hidden)
        result = self.transport.run(argv, sent, timeout=120.0)
        words = result.out.decode("utf-8", "replace").split()
        if result.code == 0 and len(words) == 2:
            return words[1], words[0] == "submitted"
        if result.code == NOT_TOLD:
            message = f"Slurm does not say whether it has job `{self.job}` already: {result.words}"
            raise HostError(self.name, "slurm-silent", message, "nothing was submitted; try again once it answers")
        raise slurm_error(self.name, "submit the job", result)

    def try_out(self, batch: bytes, hidden: Iterable[str]) -> Result:
        """Have Slurm look at a batch script without submitting it. `hidden` are variables that are not for Slurm."""
        return self.transport.run([*without(hidden), "sbatch", "--test-only"], batch)

    def order(self, job_id: str, identity: str, command: str, **more: object) -> None:
        """Have the batch script of a running job do something. Raises a HostError with code `slurm-ended` if it has ended by now."""
        self._guard()
        order = {"id": identity, "command": command, **more}
        result = self.transport.run(SCRIPTS.argv("order", self.work, job_id), json.dumps(order).encode())
        if has_ended(result):
            hint = f"`jobctl status {self.job}` says how"
            raise HostError(self.name, "slurm-ended", f"job {job_id} of Slurm has ended meanwhile", hint)
        if result.code != 0:
            raise slurm_error(self.name, f"send job {job_id} an order", result)

    def end_batch(self, job_id: str) -> None:
        """Have the batch script of a job end its processes with their grace, unless it has ended."""
        self._scancel("--batch", "--signal=TERM", job_id)

    def cancel(self, job_id: str) -> None:
        """Have Slurm end a job, unless it has ended."""
        self._scancel(job_id)

    def _scancel(self, *words: str) -> None:
        self._guard()
        result = self.command("scancel", *words)
        if result.code != 0 and not has_ended(result):
            raise slurm_error(self.name, f"cancel job {words[-1]}", result)

    def write(self, path: str, content: bytes) -> None:
        """Replace a file below the job's directory."""
        self._guard()
        with written_there():
            self._do(ON_HOSTS.argv("claim", self.work), f"write into {self.work}")
            put(self.transport, f"{self.work}/{path}", content, 0o644)

    def send(
        self, artefacts: Iterable[Artefact], folders: Sequence[str], package: Package | None, secrets: Mapping[str, str]
    ) -> None:
        """Put files below the job's directory, with the code and the values of secrets, and make folders there."""
        with written_there():
            self._guard()
            self.files.send(artefacts, folders, secrets=bool(secrets))
            if package is not None:
                self._guard()
                package.send(self.files)
            self._send_secrets(secrets)

    def _send_secrets(self, values: Mapping[str, str]) -> None:
        """Put the values of secrets into a file that only the user reads, on the storage that the nodes see."""
        self._guard()
        if values:
            self._do(["mkdir", "-p", "-m", "700", f"{self.work}/secrets"], "make a directory")
            put(self.transport, f"{self.work}/secrets/secrets.json", json.dumps(dict(values)).encode(), 0o600)
        else:
            self._do(["rm", "-rf", "--", f"{self.work}/secrets"], "remove secrets")

    def erase(self) -> None:
        """Remove the job's directory."""
        self._guard()
        with written_there():
            self._do(SCRIPTS.argv("erase", self.work), f"remove {self.work}")

    def events(self, offset: int) -> bytes:
        """Return what the allocation has written of the job's story, from a byte on."""
        return checked(self.transport, SCRIPTS.argv("events", self.work, str(offset)), "read the job's events")

    def kept_events(self, node: int, file: str) -> Json | None:
        """Return what the launchers of a node have kept of what happened, None if that cannot be read."""
        result = self.transport.run(["head", "-c", str(MAX_FILE_BYTES), "--", f"{self.work}/node-{node}/{file}"])
        return parse_object(result.out) if result.code == 0 else None

    def step(self, place: tuple[str, str]) -> list[str]:
        """Return the `srun` of a command on a machine of the allocation: `place` is the number of Slurm's job, and the machine."""
        job_id, host = place
        # The machines are there: the user's default for others may contradict what the job has asked for.
        step = [
            *without(["SLURM_CONSTRAINT"]),
            "srun",
            f"--jobid={job_id}",
            f"--nodelist={host}",
            "--nodes=1",
            "--ntasks=1",
            "--overlap",
            "--quiet",
        ]
        return [*step, "--cpu-bind=none", "--mem=0"]  # as for node runners: Slurm would bind the command to one core

    def enter(self, place: tuple[str, str], inside: Sequence[str], *, terminal: bool) -> int:
        """Run `inside` on a machine of the allocation, see `step`; return its exit code."""
        with ended_by_signals():
            return self.interact(self.step(place), inside, terminal=terminal)

    def interact(self, srun: Sequence[str], inside: Sequence[str], *, terminal: bool) -> int:
        """Run `inside` by `srun` with this process's terminal, or with pipes; return its exit code."""
        before, mark = without(of_other_steps(os.environ)), f"{SESSION_MARK}={token_hex(8)}"
        how = "--pty" if terminal else "--quit-on-interrupt"  # else the first Ctrl-C only has it print how its step is
        with ends_here(self.transport, mark, terminal=terminal):
            return self.transport.interact([*before, mark, *srun, how, *inside])

    def collect(self, into: Path) -> int:
        """Copy logs and outputs below `into`; return how many files that were."""
        return collect(self.files, into)

    def _do(self, argv: Sequence[str], what: str) -> None:
        checked(self.transport, argv, what)


def without(names: Iterable[str]) -> list[str]:
    """Return what is before a command that does not get variables."""
    return ["env", *(word for name in sorted(names) for word in ("-u", name))]
