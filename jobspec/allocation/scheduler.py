"""What the coordinator asks of Slurm: tasks on the nodes, and to go on in another allocation."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import TOKEN, say
from jobctl.jobspec.allocation.nodelist import expand

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from jobctl.jobspec.launcher.files import Json
ASKED = 30.0  # seconds that Slurm's commands get


class Scheduler:
    """Slurm, as the batch script of one job reaches it."""

    def __init__(self, work: str, settings: Json, job_id: str) -> None:
        self.work, self.settings, self.job_id = work, settings, job_id
        self.asking: Optional[subprocess.Popen[bytes]] = None  # the command that lists the machines
        self.asked = 0.0  # when it was started

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
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env={**os.environ, TOKEN: token})

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
                self.asking = subprocess.Popen(self.listing(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            except OSError as error:
                say("squeue: %s" % error)
                return []
            self.asked = now
        late = now - self.asked > ASKED
        if self.asking.poll() is None and not late:
            return None
        done, self.asking = self.asking, None
        done.kill()
        said = done.communicate()[0].decode("utf-8", "replace")
        return [] if late or done.returncode else expand(said.strip())

    def listing(self) -> List[str]:
        """Return the command that lists the machines of the allocation."""
        return ["squeue", "--noheader", "--jobs=%s" % self.job_id, "--format=%N"]

    def go_on_later(self) -> Tuple[Optional[str], str]:
        """Have the job go on in another allocation. Return the number of its job, None if it cannot, and what was done."""
        how, words = self.settings["requeue"], "`requeue: off`"
        if how in ("auto", "requeue"):
            words = self.ask(["scontrol", "requeue", self.job_id])[1]
            if not words:
                return self.job_id, "requeued"
        if how in ("auto", "chain"):
            # The job that is submitted has an allocation of its own, of which this one's variables know nothing.
            kept = [name for name in os.environ if not name.startswith("SLURM_") or name == "SLURM_CONF"]
            environ = {name: os.environ[name] for name in kept}
            batch = os.path.join(self.work, "job.sbatch")
            said, words = self.ask(["sbatch", "--parsable", "--dependency=afterany:%s" % self.job_id, batch], environ)
            if not words:
                following = said.partition(";")[0].strip()
                return following, "submitted again as job %s" % following
        return None, words

    def ask(self, argv: List[str], environ: Optional[dict[str, str]] = None) -> Tuple[str, str]:
        """Run a command of Slurm's. Return what it said, and what went wrong, nothing if nothing did."""
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                timeout=ASKED,
                # To requeue a job, Slurm tells all its processes to end, before this one has heard that it went well.
                preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", "%s: %s" % (argv[0], error)
        said, wrong = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace").strip()
        if done.returncode == 0:
            return said, ""
        say("%s: %s" % (" ".join(argv), wrong))
        return said, wrong.splitlines()[-1] if wrong else "%s ended with %d" % (argv[0], done.returncode)
