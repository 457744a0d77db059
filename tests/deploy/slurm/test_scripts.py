"""What runs on a login node, tried where there is no Slurm."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from jobctl.jobspec.allocation.scheduler import ENDED
from jobctl.jobspec.allocation.slurm_environ import USERS_OWN
from jobctl.jobspec.deploy.slurm.queue import read_look
from jobctl.jobspec.deploy.slurm.scripts import SCRIPTS

SCRIPTS_FOLDER = Path(__file__).parents[3] / "jobspec" / "deploy" / "slurm" / "scripts"
TAR = """\
#!/bin/sh
/usr/bin/env -i PATH=/usr/bin:/bin tar "$@"
exit 1  # as for a file that has changed while it was read
"""


def test_files_that_change_while_they_are_read_are_no_error(tmp_path: Path) -> None:
    work, tools = tmp_path / "work", tmp_path / "bin"
    (work / "run").mkdir(parents=True)
    (work / "run" / "job_id").write_text("7\n")
    (work / "run" / "allocation.json").write_text('{"job_id": "7"}')
    tools.mkdir()
    (tools / "tar").write_text(TAR)
    (tools / "tar").chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        SCRIPTS.argv("look", str(work), "tiny", "files"), env=environ, capture_output=True, check=False
    )
    assert done.returncode == 0
    look = read_look(done.stdout, "")
    assert (look.known_id, look.allocation, look.there, look.asked) == ("7", {"job_id": "7"}, True, False)


def test_a_look_has_the_last_line_that_the_job_has_printed(tmp_path: Path) -> None:
    """Not that of the allocation before, and nothing that looks like a part of the look."""
    work, tools = tmp_path / "work", tmp_path / "bin"
    (work / "run").mkdir(parents=True)
    tools.mkdir()
    for name in ("squeue", "scontrol"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def said() -> str | None:
        argv = SCRIPTS.argv("look", str(work), "tiny", "all")
        return read_look(subprocess.run(argv, env=environ, capture_output=True, check=True).stdout, "").said

    (work / "run" / "start.json").write_text("{}")
    assert said() is None
    (work / "slurm.out").write_text("of an allocation before\n")
    os.utime(work / "slurm.out", (0.0, 0.0))
    assert said() is None
    (work / "slurm.out").write_bytes(b"begins\n  \x1b[31mexec: python3: not found\r\n \n")
    os.utime(work / "run" / "start.json", (0.0, 0.0))
    assert said() == "[31mexec: python3: not found"
    (work / "slurm.out").write_text("== 0\n== files")
    assert said() == "== files"


def looked(work: Path, environ: dict[str, str]) -> tuple[bool, bool]:
    """Look at a job, and say whether its record is fresh, and whether it is stale."""
    argv = SCRIPTS.argv("look", str(work), "tiny", "files")
    look = read_look(subprocess.run(argv, env=environ, capture_output=True, check=True).stdout, "")
    return look.is_fresh, look.is_stale


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_how_old_a_record_is_does_not_hang_on_the_clock_of_this_machine(skew: float, tmp_path: Path) -> None:
    """That of the batch script's machine may differ: `touch` and `date` here are those of another one."""
    work, tools = tmp_path / "work", tmp_path / "bin"
    (work / "run").mkdir(parents=True)
    tools.mkdir()
    now = time.time() + skew  # by the clock of the file system
    record = work / "run" / "allocation.json"
    record.write_text('{"job_id": "7", "state": "running"}')
    (tools / "touch").write_text(f'#!/bin/sh\n/usr/bin/touch -d @{now:.0f} "$1"\n')
    (tools / "touch").chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    os.utime(record, (now - 2.0, now - 2.0))
    assert looked(work, environ) == (True, False)
    os.utime(record, (now - 60.0, now - 60.0))
    assert looked(work, environ) == (False, True)
    record.unlink()
    assert looked(work, environ) == (False, False)


def test_where_nothing_may_be_written_a_record_is_aged_by_the_clock_of_this_machine(tmp_path: Path) -> None:
    """As in the directory of another user's job, or of a file system that is mounted read-only."""
    work, tools = tmp_path / "work", tmp_path / "bin"
    (work / "run").mkdir(parents=True)
    tools.mkdir()
    record = work / "run" / "allocation.json"
    record.write_text('{"job_id": "7", "state": "running"}')
    (tools / "touch").write_text('#!/bin/sh\necho "touch: Read-only file system" >&2\nexit 1\n')
    (tools / "touch").chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    assert looked(work, environ) == (True, False)
    os.utime(record, (time.time() - 60.0,) * 2)
    assert looked(work, environ) == (False, True)


def test_erasing_leaves_the_folder_that_is_not_ours(tmp_path: Path) -> None:
    work = tmp_path / "shared" / ".jobctl" / "tiny"
    (work / "run").mkdir(parents=True)
    subprocess.run(SCRIPTS.argv("erase", str(work)), check=True)
    assert list((tmp_path / "shared").iterdir()) == []
    subprocess.run(SCRIPTS.argv("erase", str(work)), check=True)


def test_nobody_takes_what_was_before_for_a_job_that_is_being_submitted(tmp_path: Path) -> None:
    """The number of the last job is that of one that is over: beside no result it would say that the job has failed."""
    work, tools = tmp_path / "work", tmp_path / "bin"
    (work / "run").mkdir(parents=True)
    tools.mkdir()
    (work / "run" / "job_id").write_text("7\n")
    (work / "run" / "allocation.json").write_text('{"job_id": "7"}')
    for name, script in {
        "squeue": "exit 0",
        "scontrol": "echo JobId=7 JobState=COMPLETED ",
        "sbatch": f"ls {work}/run > {tmp_path}/seen; echo 8",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    argv = SCRIPTS.argv("submit", str(work), "tiny", "mark")
    done = subprocess.run(argv, env=environ, input="", capture_output=True, text=True, check=True)
    assert done.stdout == "submitted 8\n"
    assert (tmp_path / "seen").read_text().split() == ["submit.lock"]
    assert (work / "run" / "job_id").read_text() == "8\n"
    subprocess.run(argv, env=environ, input='{"code": "1"}', capture_output=True, text=True, check=True)
    assert (tmp_path / "seen").read_text().split() == ["sent.json", "submit.lock"]
    assert (work / "run" / "sent.json").read_text() == '{"code": "1"}\n'


@pytest.mark.parametrize(
    ("flock", "code", "said", "words"),
    [
        ("exit 1", 75, "", "another submission has not ended\n"),
        ("echo 'flock: 9: No locks available' >&2; exit 71", 0, "submitted 8\n", ""),
        ("echo 'flock: 9: Function not implemented' >&2; exit 65", 0, "submitted 8\n", ""),
    ],
)
def test_a_job_is_submitted_on_storage_without_locks_too(
    flock: str, code: int, said: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    for name, script in {"squeue": "", "sbatch": "echo 8", "flock": flock}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = SCRIPTS.argv("submit", str(tmp_path), "tiny", "mark")
    done = subprocess.run(argv, env=environ, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, said, words)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("JobName=tiny UserId=ada(1000) JobState=RUNNING Comment=other", "there 7\n"),
        ("JobName=renamed UserId=ada(1000) JobState=RUNNING Comment=jobctl /a/tiny", "there 7\n"),
        ("JobName=other UserId=bob(1001) JobState=RUNNING Comment=jobctl /a/other", "submitted 8\n"),
    ],
)
def test_a_job_that_has_got_the_number_of_the_last_one_is_not_taken_for_it(
    shown: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job_id").write_text("7\n")
    for name, script in {"squeue": "", "scontrol": f"echo 'JobId=7 {shown}'", "sbatch": "echo 8"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = SCRIPTS.argv("submit", str(tmp_path), "tiny", "jobctl /a/tiny")
    done = subprocess.run(argv, env=environ, input="", capture_output=True, text=True, check=True)
    assert done.stdout == said


GREETING = "echo '--- Welcome to Foo ---'; echo '3 queues;'"


@pytest.mark.parametrize(
    ("sbatch", "code", "said"),
    [
        (f"{GREETING}; echo '8;foo'; echo 'Have a nice day'", 0, "submitted 8\n"),
        (GREETING, 1, ""),
    ],
)
def test_a_clusters_own_sbatch_may_print_more(sbatch: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name, script in {"squeue": "", "sbatch": sbatch}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = SCRIPTS.argv("submit", str(tmp_path), "tiny", "mark")
    done = subprocess.run(argv, env=environ, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, said)
    known = tmp_path / "run" / "job_id"
    assert (known.read_text() if known.exists() else "") == said.removeprefix("submitted ")


def test_slurm_gets_the_environment_as_it_is(tmp_path: Path) -> None:
    """A variable of the user's may have any name, such as those of a script's own."""
    script = (SCRIPTS_FOLDER / "submit.sh").read_text()
    names = sorted({*re.findall(r"\$\{?([a-z][a-z_]*)", script), "name", "work", "id"} - {"one", "comment"})
    mine = {name: "mine" for name in names if not name.startswith("jobctl_")}
    (tmp_path / "run").mkdir()
    seen = {"squeue": "", "sbatch": f"env > {tmp_path}/seen; echo 8"}
    for name, text in seen.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environ = {**os.environ, **mine, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = SCRIPTS.argv("submit", str(tmp_path), "tiny", "mark")
    subprocess.run(argv, env=environ, input="", capture_output=True, text=True, check=True)
    assert {f"{name}=mine" for name in mine} <= set((tmp_path / "seen").read_text().splitlines())


def test_what_a_killed_command_has_left_goes_unless_it_may_run_or_wait(tmp_path: Path) -> None:
    """A command that runs touches its directory; one that waits is known to Slurm, if Slurm tells the truth."""
    top, tools = tmp_path / "it's shared" / ".jobctl", tmp_path / "bin"
    tools.mkdir(parents=True)
    hours_ago = time.time() - 7200.0
    for name in (".look-tiny.aaaa", ".look-tiny.bbbb", ".look-other.cccc", "tiny"):
        (top / name / "secrets").mkdir(parents=True)
        os.utime(top / name, (hours_ago, hours_ago))
    (top / ".look-tiny.dddd").mkdir()
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def looked(what: str, scontrol: str) -> set[str]:
        for name, script in (("squeue", "exit 0"), ("scontrol", scontrol), ("scancel", f'echo "$@" >> {tools}/ended')):
            (tools / name).write_text(f"#!/bin/sh\n{script}\n")
            (tools / name).chmod(0o755)
        argv = SCRIPTS.argv("look", str(top / "tiny"), "tiny", what)
        done = subprocess.run(argv, env=environ, capture_output=True, check=True)
        assert read_look(done.stdout, "").problem is None
        return {path.name for path in top.iterdir()}

    every = {".look-tiny.aaaa", ".look-tiny.bbbb", ".look-other.cccc", ".look-tiny.dddd", "tiny"}
    waits = f'echo "JobId=9 JobState=PENDING Comment=jobctl {top}/.look-tiny.bbbb StdIn=/dev/null"'
    assert looked("files", waits) == every  # Slurm is not asked
    assert looked("all", "exit 0") == every
    assert looked("all", "echo slurm_load_jobs error >&2; exit 1") == every
    assert looked("all", waits) == {".look-tiny.bbbb", ".look-tiny.dddd", "tiny"}
    ends = waits.replace("PENDING", "CANCELLED")
    (top / ".look-tiny.cccc").mkdir()
    os.utime(top / ".look-tiny.cccc", (hours_ago, hours_ago))
    killed = f'echo "JobId=8 JobName=tiny JobState=RUNNING Reason=None Comment=jobctl {top}/.look-tiny.cccc"'
    assert not (tools / "ended").exists()
    assert looked("all", f"{ends}; {killed}") == {".look-tiny.dddd", "tiny"}
    assert (tools / "ended").read_text() == "8\n"  # its `srun` was killed, and nobody else would end it


USERS = {
    **dict.fromkeys(
        ("SQUEUE_STATES", "SQUEUE_PARTITION", "SCANCEL_INTERACTIVE", "SCONTROL_ALL", "SACCT_FEDERATION"), "x"
    ),
    "NOTE": "two lines\nSQUEUE_SORT=i",
}


@pytest.mark.parametrize(
    ("argv", "commands"),
    [
        (("look", "{work}", "tiny", "all"), {"squeue", "scontrol", "sacct", "scancel"}),
        (("submit", "{work}", "tiny", "mark"), {"squeue", "scontrol", "sbatch"}),
        (("place", "7"), {"squeue", "scontrol"}),
        (("order", "{work}", "7"), {"scancel"}),
        (("command", "scancel", "7"), {"scancel"}),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_what_a_user_sets_for_slurms_commands_changes_nothing(
    argv: tuple[str, ...], commands: set[str], tmp_path: Path
) -> None:
    """With SQUEUE_STATES a job that has ended is in the list; with SCANCEL_INTERACTIVE a command asks whether it shall."""
    work, tools, seen = tmp_path / ".jobctl" / "tiny", tmp_path / "bin", tmp_path / "seen"
    for folder in (work / "run", work.parent / ".look-tiny.aaaa", tools, seen):
        folder.mkdir(parents=True)
    os.utime(work.parent / ".look-tiny.aaaa", (0.0, 0.0))
    (work / "run" / "job_id").write_text("7\n")
    runs = f"echo 'JobId=6 JobName=other JobState=RUNNING Comment=jobctl {work.parent}/.look-tiny.aaaa'"
    for name in ("squeue", "scontrol", "sacct", "scancel", "sbatch"):
        said = {
            "scontrol": f"{runs}; echo PrivateData=none",
            "sbatch": "echo 8",
            "squeue": 'case "$*" in *--jobs*) echo gpu ;; esac',
        }
        (tools / name).write_text(f"#!/bin/sh\nenv >> {seen}/{name}\n{said.get(name, '')}\n")
        (tools / name).chmod(0o755)
    environ = {**os.environ, **USERS, "PATH": f"{tools}:{os.environ['PATH']}"}
    words = [word.format(work=work) for word in argv]
    subprocess.run(SCRIPTS.argv(*words), env=environ, input=b"", capture_output=True, check=True)
    found = {path.name: path.read_text().splitlines() for path in seen.iterdir()}
    assert set(found) == commands
    for name, lines in found.items():
        given = {line.partition("=")[0] for line in lines} & {*USERS, "SLURM_TIME_FORMAT"}
        assert given == (set(USERS) if name == "sbatch" else {"NOTE", "SLURM_TIME_FORMAT"}), name


def test_a_job_that_has_ended_is_not_there_though_slurm_lists_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    listed = {"squeue": "printf '6|CANCELLED|mark\\n7|TIMEOUT|mark\\n9|RUNNING|other\\n'", "sbatch": "echo 8"}
    assert submitted(tmp_path, listed) == "submitted 8\n"
    listed["squeue"] += "; echo '10|COMPLETING|mark'"
    assert submitted(tmp_path, listed) == "there 10\n"


def submitted(work: Path, commands: dict[str, str]) -> str:
    """Submit a job whose comment is `mark` by such commands; return what the script says."""
    for name, script in commands.items():
        (work / name).write_text(f"#!/bin/sh\n{script}\n")
        (work / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{work}:{os.environ['PATH']}"}
    argv = SCRIPTS.argv("submit", str(work), "tiny", "mark")
    return subprocess.run(argv, env=environ, input="", capture_output=True, text=True, check=True).stdout


def test_login_node_and_allocation_know_the_same_variables_and_states() -> None:
    text = SCRIPTS.text("plain")
    names = re.search(r"\^\(\(([A-Z|]+)\)_", text)
    over = re.search(r"jobctl_over='([A-Z_|]+)'", text)
    assert names is not None
    assert over is not None
    assert {f"{name}_" for name in names[1].split("|")} == set(USERS_OWN)
    assert set(over[1].split("|")) == set(ENDED)


WAITING = {
    "squeue": 'case "$*" in *--jobs*7*) echo gpu ;; *--partition*gpu*) echo "7|12|gpu|Priority" ;; esac',
    "scontrol": "printf 'PluginDir = /usr/lib\\nPrivateData = none\\n'",
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "7|12|gpu|Priority\n"),
        ({"scontrol": "echo 'PrivateData = accounts,jobs'"}, ""),  # there would be the user's own jobs only
        ({"squeue": "echo gpu,cpu"}, ""),
        ({"squeue": "exit 0"}, ""),
    ],
)
def test_the_place_in_a_queue_is_asked_where_it_can_be_known(
    changed: dict[str, str], said: str, tmp_path: Path
) -> None:
    for name, script in {**WAITING, **changed}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(SCRIPTS.argv("place", "7"), env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == said


def test_a_place_that_slurm_does_not_tell_is_an_error(tmp_path: Path) -> None:
    for name, script in {**WAITING, "scontrol": "exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(SCRIPTS.argv("place", "7"), env=environ, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize(("code", "kept"), [(0, True), (1, False)])
def test_an_order_that_slurm_does_not_pass_on_is_taken_back(code: int, kept: bool, tmp_path: Path) -> None:
    """The command has failed: an allocation that followed the order days later would surprise everybody."""
    (tmp_path / "run").mkdir()
    (tmp_path / "scancel").write_text(f"#!/bin/sh\nexit {code}\n")
    (tmp_path / "scancel").chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = SCRIPTS.argv("order", str(tmp_path), "7")
    done = subprocess.run(argv, input=b'{"id": "restart-1"}', env=environ, check=False)
    assert (done.returncode, (tmp_path / "run" / "order.json").exists()) == (code, kept)
