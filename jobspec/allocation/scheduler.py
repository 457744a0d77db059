"""What the coordinator asks of Slurm: tasks on the nodes, and to go on in another allocation."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import TOKEN, say
from jobctl.jobspec.allocation.nodelist import expand
from jobctl.jobspec.allocation.slurm_environ import command_environ, next_job_environ, step_environ

if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple

    from jobctl.jobspec.launcher.system.files import Json
COMMAND_TIMEOUT = 30.0  # seconds that Slurm's commands get
# Seconds within which Slurm answers that the job goes on, and then within which it ends one that it requeued.
HAND_OVER = 120.0
RETRY_INTERVAL = 5.0  # seconds between two tries
POLL = 0.1
# Words of Slurm's commands, as the libraries of 22.05 and 24.11 have them, and of Python's, if nobody knows whether a request has
# reached its controller.
UNANSWERED = (
    *("Unable to contact slurm controller", "timed out", "Zero Bytes were transmitted or received", "in standby mode"),
    *("Communication connection failure", "Communication shutdown failure", "Message send failure"),
    *("Message receive failure", "Connection refused", "Connection reset", "No route to host"),
)
# The same if its controller has refused a request, or there is no such command: no job goes on because of it.
REFUSED = ("presently disabled", "Access/permission denied", "[Errno")
# States of a job that has ended, as scripts on the login node know them (`jobctl_over`).
ENDED = (
    *(
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "OUT_OF_MEMORY",
        "BOOT_FAIL",
        "DEADLINE",
    ),
    *("REVOKED", "LAUNCH_FAILED"),
)
# States of a job that waits for its allocation.
IN_QUEUE = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")


class SlurmSilent(Exception):
    """Slurm does not say what has become of a request: it may have heard it."""


class Scheduler:
    """Slurm, as the batch script of one job reaches it."""

    def __init__(self, work: str, settings: Json, job_id: str) -> None:
        self.work, self.settings, self.job_id = work, settings, job_id
        self.asking: Optional[subprocess.Popen[bytes]] = None  # the command that lists the machines
        self.asked = 0.0  # when it was started
        self.may_follow = False  # whether anyone may have asked for another allocation already
        self.blind = False  # whether nobody could look into the queue the last time
        self.preempted = False  # whether Slurm gives the nodes to another job, as far as it was asked

    def start_runners(self, hosts: List[str], each: int, port: int, token: str) -> subprocess.Popen[bytes]:
        """Start `each` node runners on each of `hosts`, in one step that goes on without those that fail."""
        argv = [
            *(
                "srun",
                "--nodelist=%s" % ",".join(hosts),
                "--nodes=%d" % len(hosts),
                "--ntasks=%d" % (each * len(hosts)),
            ),
            *(
                "--ntasks-per-node=%d" % each,
                "--overcommit",
                "--no-kill",
                "--kill-on-bad-exit=0",
                "--wait=0",
                "--overlap",
            ),
            # Without, each task is bound to the one core that Slurm counts for it.
            *("--cpu-bind=none", "--mem=0", "--export=ALL", "--unbuffered"),
            *(self.settings["runner_python"], os.path.join(self.work, "allocation.py"), "node"),
            *("--work", self.work, "--port", str(port)),
        ]
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env={**step_environ(os.environ), TOKEN: token})

    def machines(self) -> List[str]:
        """Return the machines that the allocation has now, none if Slurm does not say."""
        said, _ = self.ask(self.listing())
        return expand(said.strip())

    def machines_soon(self, now: float) -> Optional[List[str]]:
        """Return the same, None as long as Slurm has not answered: nobody who keeps leases may wait for that.

        Without its controller, Slurm's commands need as long to give up as node runners wait for an answer.
        """
        if self.asking is None:
            try:
                environ = command_environ(os.environ)
                self.asking = subprocess.Popen(
                    self.listing(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environ
                )
            except OSError as error:
                say("squeue: %s" % error)
                return []
            self.asked = now
        late = now - self.asked > COMMAND_TIMEOUT
        if self.asking.poll() is None and not late:
            return None
        done, self.asking = self.asking, None
        done.kill()
        said = done.communicate()[0].decode("utf-8", "replace")
        return [] if late or done.returncode else expand(said.strip())

    def listing(self) -> List[str]:
        """Return the command that lists the machines of the allocation."""
        return ["squeue", "--noheader", "--jobs=%s" % self.job_id, "--format=%N"]

    def is_preempted(self) -> bool:
        """Say whether Slurm gives the nodes to another job, as far as it answers."""
        said, _ = self.ask(["squeue", "--noheader", "--jobs=%s" % self.job_id, "--Format=PreemptTime"])
        self.preempted = self.preempted or re.search(r"^\d{4}-", said, re.MULTILINE) is not None
        return self.preempted

    def go_on_later(self, is_ended: Callable[[], bool] = lambda: False) -> Tuple[Optional[str], str]:
        """Have the job go on in another allocation. Return the number of its job, None if it cannot, and what was done.

        Raises SlurmSilent if Slurm does not answer within HAND_OVER, or until `is_ended`.
        """
        deadline = time.monotonic() + HAND_OVER
        while True:
            try:
                return self.try_to_go_on()
            except SlurmSilent:
                if is_ended() or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_INTERVAL)

    def try_to_go_on(self) -> Tuple[Optional[str], str]:
        """Do the same once. Raises SlurmSilent if Slurm does not answer.

        A request may have arrived though its answer has not: two jobs in the queue would train one after the other. So
        without a look into the queue, none is sent after one that was not refused.
        """
        how, words = self.settings["requeue"], "`requeue: off`"
        if how in ("auto", "requeue"):
            following = self.following()
            if following is None:
                words = self.request(["scontrol", "requeue", self.job_id])[1]
                following = None if words else self.job_id
            if following is not None:
                return self.done(following)
        if how in ("auto", "chain"):
            following = self.following()
            if following is None:
                batch = os.path.join(self.work, "job.sbatch")
                argv = ["sbatch", "--parsable", "--dependency=afterany:%s" % self.job_id, batch]
                said, words = self.request(argv, next_job_environ(os.environ))
                following = None if words else job_in(said)
            if following is not None:
                return self.done(following)
        if self.blind:
            raise SlurmSilent(words)  # what is wrong with all of Slurm's commands may pass, as where munge starts again
        return None, words

    @property
    def is_over(self) -> bool:
        """Whether Slurm does not requeue the job, as it has preempted one with `--no-requeue`."""
        return self.preempted and self.settings["requeue"] == "chain"

    def done(self, following: str) -> Tuple[str, str]:
        """Return the job that goes on, and how that came about."""
        return following, "requeued" if following == self.job_id else "submitted again as job %s" % following

    def following(self) -> Optional[str]:
        """Return the job in the queue that goes on after this one, None if there is none. Raises SlurmSilent.

        Where nobody may look into the queue, none can be there as long as nobody has asked for one.
        """
        argv = ["squeue", "--noheader", "--user=%d" % os.getuid(), "--name=%s" % self.settings["job"]]
        said, words = self.ask_surely([*argv, "--format=%i|%T|%k"])
        self.blind = bool(words)
        if self.blind and self.may_follow:
            raise SlurmSilent(words)
        for line in said.splitlines():
            number, _, rest = line.strip().partition("|")
            state, _, comment = rest.partition("|")
            if comment != "jobctl %s" % self.work or (number == self.job_id and self.is_over):
                continue
            if number == self.job_id and state == "COMPLETING":
                raise SlurmSilent("Slurm ends job %s, and has not said whether it goes on" % number)
            if state in IN_QUEUE or (number != self.job_id and state not in ("COMPLETING", *ENDED)):
                return number
        return None

    def request(self, argv: List[str], environ: Optional[dict[str, str]] = None) -> Tuple[str, str]:
        """Ask Slurm for another allocation, and return the same as `ask`. Raises SlurmSilent if it may have gone well all the same."""
        before, self.may_follow = self.may_follow, True
        said, words = self.ask_surely(argv, environ)
        if any(sign in words for sign in REFUSED):
            self.may_follow = before
        return said, words

    def ask_surely(self, argv: List[str], environ: Optional[dict[str, str]] = None) -> Tuple[str, str]:
        """Run a command of Slurm's, and return the same as `ask`. Raises SlurmSilent if it may have gone well all the same."""
        said, words = self.ask(argv, environ)
        if any(sign in words for sign in UNANSWERED):
            raise SlurmSilent(words)
        return said, words

    def ask(self, argv: List[str], environ: Optional[dict[str, str]] = None) -> Tuple[str, str]:
        """Run a command of Slurm's. Return what it said, and what went wrong, nothing if nothing did."""
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=command_environ(os.environ) if environ is None else environ,
                timeout=COMMAND_TIMEOUT,
                # To requeue a job, Slurm tells all its processes to end, before this one has heard that it went well.
                preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            say("%s: %s" % (argv[0], error))
            return "", "%s: %s" % (argv[0], error)
        said, wrong = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace").strip()
        if done.returncode == 0:
            return said, ""
        say("%s: %s" % (" ".join(argv), wrong))
        return said, wrong.splitlines()[-1] if wrong else "%s ended with %d" % (argv[0], done.returncode)


def job_in(said: str) -> str:
    """Return the number of the job that `sbatch` has submitted. Raises SlurmSilent if it names none.

    A cluster's own `sbatch` may print more than that.
    """
    found: List[str] = re.findall(r"^(\d+)(?:;.*)?$", said, re.MULTILINE)
    if not found:
        raise SlurmSilent("sbatch names no job")
    return found[-1]


def wait_for_end(signals: List[int]) -> None:
    """Wait until Slurm tells the batch script to end, as it does once it has requeued the job. `signals`: those that come."""
    signals.clear()
    deadline = time.monotonic() + HAND_OVER
    while not signals and time.monotonic() < deadline:
        time.sleep(POLL)
