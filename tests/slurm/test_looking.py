"""A look at a job in a real Slurm: `run` beside the job or without it, and `supervise`, which only tells."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.transport.base import TerminalSize
from jobctl.jobspec.deploy.transport.running import ProcessCommand
from tests.slurm.cluster import READY, wait_for
from tests.slurm.conftest import BOTH, SlurmJobs, versions

TELL = 'echo "$(hostname) $SLURM_JOB_ID ${SLURM_PROCID:-none} $COLOUR $TOKEN $(cat given)"'


def told(jobs: SlurmJobs, *options: str) -> list[str]:
    return jobs.ok("run", *options, "--", "sh", "-c", TELL).split()


@versions(
    pytest.mark.release(
        "tests/slurm/test_looking.py::test_a_command_has_a_machine_of_slurm_with_what_the_job_would_have[22.05]"
    )
)
def test_a_command_has_a_machine_of_slurm_with_what_the_job_would_have(jobs: SlurmJobs, login: Path) -> None:
    """Over SSH, where nothing is left of it."""
    shared = jobs.directory / "it's shared"
    shared.mkdir()
    where = {"login": "login.test", "directory": str(shared)}
    jobs.write(spec={"code": ".", "env": {"COLOUR": "sea green"}, "secrets": ["TOKEN"]}, time="5m", **where)
    (jobs.directory / "given").write_text("code-here")
    jobs.environ.update(TOKEN="hidden-7", PATH=os.environ["PATH"])
    reached = ("--target", "slurm", "--ssh-config", str(login))
    host, job, *rest = told(jobs, *reached)
    assert (host, rest) == ("s1", ["none", "sea", "green", "hidden-7", "code-here"])
    assert "TimeLimit=00:05:00" in jobs.cluster.run("scontrol", "show", "job", job)
    assert jobs.run("run", *reached, "--", "sh", "-c", "exit 7").returncode == 7
    missing = jobs.run("run", *reached, "--", "no-such-command")
    assert (missing.returncode, "no-such-command: No such file or directory" in missing.stderr) == (127, True)
    interrupt(jobs, "run", *reached, "--", "sleep", "98765")
    assert list(shared.iterdir()) == []
    wait_for(lambda: not jobs.jobs(), "an empty queue")


def interrupt(jobs: SlurmJobs, *args: str) -> None:
    """Press Ctrl-C at a command in a pipe, once what it has started runs."""
    words, nothing = [sys.executable, "-m", "jobctl", *args], subprocess.DEVNULL
    with subprocess.Popen(words, env=jobs.environ, cwd=jobs.directory, stdin=nothing, stdout=nothing) as command:
        wait_for(lambda: [node for node in jobs.cluster.nodes if node.processes(args[-1])], "the command")
        command.send_signal(signal.SIGINT)
    assert command.returncode == 130


@BOTH
def test_a_command_runs_beside_a_job_that_runs(jobs: SlurmJobs) -> None:
    jobs.write(spec={"code": ".", "env": {"COLOUR": "blue"}, "secrets": ["TOKEN"]})
    (jobs.directory / "given").write_text("code-here")
    jobs.environ["TOKEN"] = "hidden-7"
    jobs.ok("up", "--target", "slurm")
    job = str(jobs.running()["slurm"]["job_id"])
    jobs.goes_on()
    assert told(jobs, "--node", "1") == ["s2", job, "none", "blue", "hidden-7", "code-here"]
    assert "the job has no node `2`" in jobs.run("run", "--node", "2", "--", "true").stderr
    jobs.goes_on()
    assert (jobs.status()["generation"], jobs.jobs()) == (1, [job])
    assert [path.name for path in jobs.work.parent.iterdir()] == [jobs.name]
    jobs.ok("down")


@BOTH
def test_a_command_waits_for_a_machine_and_is_told_what_slurm_refuses(jobs: SlurmJobs) -> None:
    jobs.write(partition="nowhere")
    done = jobs.run("run", "--target", "slurm", "--", "true")
    assert (done.returncode, "`sinfo` lists the partitions" in done.stderr) == (3, True), done.stderr

    other = jobs.cluster.run("sbatch", "--parsable", "--exclusive", "-N4", "--output=/dev/null", "--wrap", "sleep 600")
    wait_for(lambda: jobs.cluster.idle() == 0, "a busy cluster")
    jobs.write(exclusive=True)
    argv = [sys.executable, "-m", "jobctl", "run", "--target", "slurm", "--", "hostname"]
    with subprocess.Popen(
        argv, cwd=jobs.directory, env=jobs.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr is not None
        assert any("queued and waiting for resources" in line for line in waiting.stderr)
        jobs.cluster.run("scancel", other.strip())
        out, _ = waiting.communicate(timeout=READY)
    # which node is free first is Slurm's choice
    assert (bool(re.fullmatch(r"s\d\n", out)), waiting.returncode) == (True, 0), out


def test_what_a_command_has_left_goes_with_the_next_one(jobs: SlurmJobs) -> None:
    """Both `run` and its `srun` were killed hard, so nobody was left to remove it; it is told by its age."""
    jobs.write(spec={"secrets": ["TOKEN"]})
    jobs.environ["TOKEN"] = "hidden-7"
    argv = [sys.executable, "-m", "jobctl", "run", "--target", "slurm", "--", "sleep", "600"]
    looking = subprocess.Popen(argv, cwd=jobs.directory, env=jobs.environ, start_new_session=True)
    wait_for(lambda: jobs.cluster.nodes[0].processes("sleep\x00600"), "the command")
    os.killpg(looking.pid, signal.SIGSTOP)  # it sees nobody end, and so removes nothing
    for pid in (*jobs.cluster.nodes[0].processes("allocation.py\0look"), *jobs.cluster.ctl.processes("srun")):
        os.kill(pid, signal.SIGKILL)
    os.killpg(looking.pid, signal.SIGKILL)
    looking.wait()
    (left,) = (jobs.directory / ".jobctl").iterdir()
    jobs.ok("run", "--target", "slurm", "--", "true")
    assert left.exists()  # it might be of a command that runs
    os.utime(left, (0, 0))
    jobs.ok("run", "--target", "slurm", "--", "true")
    assert not left.exists()
    wait_for(lambda: not jobs.jobs(), "an empty queue: Slurm keeps the machine of a killed `srun`")


def test_a_person_has_a_terminal_there(jobs: SlurmJobs) -> None:
    """Ctrl-C is for the command, and not for what stands around it."""
    jobs.write()
    inside = "trap 'echo caught' INT; tty; read line; echo \"got $line\"; read more; exit 5"
    words = [sys.executable, "-m", "jobctl", "run", "--target", "slurm", "--", "sh", "-c", inside]
    command = ProcessCommand(words, jobs.environ, str(jobs.directory), TerminalSize("xterm", 80, 24))
    said = b""

    def until(sign: bytes) -> None:
        nonlocal said
        while sign not in said:
            more = command.output()
            assert more, said
            said += more

    try:
        until(b"/dev/pts/")
        command.send(b"hello\n")
        until(b"got hello")
        command.send(b"\x03")
        until(b"caught")
        command.send(b"\n")
        assert command.wait() == 5, said
    finally:
        command.close()
    assert said.count(b"caught") == 1


def test_to_supervise_is_to_tell_what_happens_until_the_job_ends(jobs: SlurmJobs) -> None:
    other = jobs.cluster.run("sbatch", "--parsable", "--exclusive", "-N4", "--output=/dev/null", "--wrap", "sleep 600")
    jobs.write(30)
    jobs.ok("up", "--target", "slurm")
    (job,) = jobs.jobs()
    argv = [sys.executable, "-m", "jobctl", "supervise"]
    with subprocess.Popen(
        argv, cwd=jobs.directory, env=jobs.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as telling:
        assert telling.stderr is not None
        assert any(f"pending: job {job} waits in Slurm's queue" in line for line in telling.stderr)
        jobs.cluster.run("scancel", other.strip())
        _, said = telling.communicate(timeout=READY)
    assert telling.returncode == 0, said
    lines = [line[20:] for line in said.splitlines()]
    # which nodes are free first is Slurm's choice
    assert any(re.fullmatch(rf"job {job} of Slurm runs on s\d, s\d", line) for line in lines), lines
    assert lines[-1] == "nothing left to supervise: the job has succeeded"
    again = jobs.run("supervise")
    assert (again.returncode, "nothing left to supervise" in again.stderr) == (0, True)
    jobs.ok("down")
