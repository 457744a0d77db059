"""The supervisor as a process that outlives the command and its terminal."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import LET_GO, end_holder, read_holder
from jobctl.jobspec.deploy.store.processes import (
    SUPERVISES_MARK,
    end,
    folder_mark,
    start_ticks,
    with_folder,
    without_marks,
)
from jobctl.jobspec.deploy.transport.descriptors import for_child

TIMEOUT = 120.0  # seconds: one that lives is only slow, on a machine that has other things to do


def start_supervisor(job: JobDir, argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Start `argv` in a session of its own, its output in the job's directory; return once it is the job's supervisor.

    Raises DeployError if it ends before that, or does not get there in time.
    """
    log = job.supervisor_log
    with log.open("ab") as file:
        process = subprocess.Popen(
            argv,
            env={**without_marks(environ), **folder_mark(SUPERVISES_MARK, job.root)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            cwd="/",
            preexec_fn=for_child(),
        )
    deadline = time.monotonic() + TIMEOUT
    while not read_holder(job.supervisor_lock):
        if process.poll() not in (None, 0):
            raise DeployError(f"{' '.join(argv)} ended with code {process.returncode}", f"see {log}")
        if process.poll() == 0:
            return  # it found nothing left to do
        if time.monotonic() > deadline:
            raise DeployError(f"{' '.join(argv)} does not start", f"see {log}")
        time.sleep(0.01)


def keep_mark() -> None:
    """Keep the mark of this process, if it is such a supervisor, from all that it starts: the mark stays in its own /proc/PID.

    A command of `notify` may bring another job up, and `down` of this one must not take the processes of that for its own.
    """
    os.environ.pop(SUPERVISES_MARK, None)


def end_supervisor(job: JobDir) -> None:
    """End the job's supervisor, and one that has not got as far as to say so: its `up` may have been killed."""
    end_holder(job.supervisor_lock)
    end_left_behind(job)


def end_left_behind(job: JobDir) -> bool:
    """End the supervisor that an `up` has left behind, and say whether there was one; a person's own goes on."""
    left = list(with_folder(SUPERVISES_MARK, job.root))
    for pid in left:
        end(pid, start_ticks(pid), LET_GO)
    return bool(left)
