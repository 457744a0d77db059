"""A command in Slurm ends with the `jobctl` that started it, or once nobody reads what it prints."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.scripts import SCRIPTS
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host
from tests.tools.interruptions import interrupts, loses_the_host, nobody_reads, terminates


@pytest.mark.parametrize(
    ("during", "ended"),
    [(interrupts, True), (terminates, True), (nobody_reads, True), (lambda: 7, False), (loses_the_host, False)],
)
def test_srun_ends_with_the_jobctl_that_started_it(during: Callable[[], int], ended: bool) -> None:
    """Over SSH without a terminal, nothing else would tell it: its step would go on until the job's end."""
    entered: list[str] = []
    asked: list[list[str]] = []
    played: Any = SimpleNamespace(host="login", run=asked.append)
    played.interact = lambda argv: [entered.extend(argv), during()][1]
    login = LoginNode(Inventory((Host("login"),)), "tiny", "/shared/tiny", played)
    with contextlib.suppress(KeyboardInterrupt, SystemExit, OSError, HostError):
        assert login.enter(("8", "s2"), ["sleep", "9"], terminal=False) == 7
    (mark,) = [word for word in entered if word.startswith("JOBCTL_SESSION=")]
    assert asked == ([SCRIPTS.argv("hang_up", mark)] if ended else [])


# Plays a command of `srun` on this machine, which prints once and never sees that nobody reads it.
_SRUN = """\
import subprocess, sys
from jobctl.jobspec.deploy.slurm.sessions import ends_here
from jobctl.jobspec.deploy.transport.local import LocalTransport
there, mark = LocalTransport(), sys.argv[1]
with ends_here(there, mark, terminal=False):
    code = there.interact(["env", mark, "sh", "-c", "echo begun; exec sleep 600"])
sys.exit(code)
"""


def test_srun_ends_on_this_machine_once_nobody_reads_what_it_prints() -> None:
    """As in `exec -- yes | head -1`: it reads on from its step, and drops what it gets."""
    mark = f"JOBCTL_SESSION={os.urandom(8).hex()}"
    command = subprocess.Popen([sys.executable, "-c", _SRUN, mark], stdout=subprocess.PIPE)
    try:
        assert command.stdout is not None
        assert command.stdout.readline() == b"begun\n"
        command.stdout.close()
        assert command.wait(60) == 128 + signal.SIGTERM
    finally:
        command.kill()  # and with it what it has started
        command.wait()


def test_only_what_bears_the_mark_is_ended() -> None:
    mark = f"JOBCTL_SESSION={os.urandom(8).hex()}"
    sleeps = [
        subprocess.Popen(["env", value, "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
        for value in (mark, mark + "0")
    ]
    for sleep in sleeps:
        assert sleep.stdout is not None
        sleep.stdout.readline()
    assert LocalTransport().run(SCRIPTS.argv("hang_up", mark)).code == 0
    assert sleeps[0].wait(60) == -signal.SIGTERM
    assert sleeps[1].poll() is None
    sleeps[1].kill()
    for sleep in sleeps:
        sleep.communicate()
