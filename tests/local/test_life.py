"""A job's life on this machine, through the command only: up, look, stop, down."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.tools.contents import holding

from .conftest import kill


def test_up_runs_every_node_and_wait_tells_the_result(jobs: Any) -> None:
    done = jobs.run("up")
    assert done.returncode == 0, done.stderr
    assert jobs.run("wait", "--timeout", "60s").returncode == 0
    state = jobs.left()
    nodes = state.pop("nodes")
    assert state == {
        "job": "counter",
        "framework": "torch",
        "mode": "collective",
        "target": "local",
        "phase": "succeeded",
        "reason": None,
        "generation": 1,
        "supervised": False,
        "replicas": "0/2",
        "spares": [],
    }
    assert [
        (n["node"], n["role"], n["host"], n["state"], n["exit_code"], n["progress"], n["restarts"]) for n in nodes
    ] == [
        (0, "trainer", "localhost", "exited", 0, 5, 0),
        (1, "trainer", "localhost", "exited", 0, 5, 0),
    ]


def test_up_of_a_succeeded_job_changes_nothing(jobs: Any) -> None:
    jobs.ok("up")
    jobs.ok("wait")
    jobs.left()
    before = jobs.events()
    done = jobs.run("up")
    assert (done.returncode, "nothing to do" in done.stderr) == (0, True)
    assert jobs.status()["generation"] == 1
    assert jobs.events() == before


def test_up_of_a_succeeded_job_trains_again_when_its_spec_changed(jobs: Any) -> None:
    assert jobs.run("up", "--follow").returncode == 0
    assert "nothing to do" in jobs.run("up").stderr
    again = jobs.run("up", "--set", "env.MORE=1", "--follow")
    assert (again.returncode, "generation 2: env.MORE: unset → 1" in again.stderr) == (0, True)
    elsewhere = jobs.run("up", "--set", "env.MORE=1", "--set", f"checkpoint={jobs.directory}/other", "--follow")
    cause = f"generation 3: checkpoint.dir: {jobs.directory}/checkpoints → {jobs.directory}/other"
    assert (elsewhere.returncode, cause in elsewhere.stderr) == (0, True), elsewhere.stderr
    assert (jobs.directory / "other" / "step-0").read_text() == "5"


def test_up_twice_changes_nothing_the_second_time_and_a_changed_spec_what_depends_on_it(slow: Any) -> None:
    slow.ok("up")
    before = {p["pid"] for n in slow.running()["nodes"] for p in n["processes"]}
    assert slow.run("plan").returncode == 0
    done = slow.run("up")
    assert (done.returncode, "nothing to do" in done.stderr) == (0, True)
    assert {p["pid"] for n in slow.status()["nodes"] for p in n["processes"]} == before
    done = slow.run("plan", "--set", "env.COLOUR=red")
    assert done.stdout.splitlines() == [
        "replace node 0 on localhost: env.COLOUR: unset → red",
        "replace node 1 on localhost: env.COLOUR: unset → red",
        "generation 2: env.COLOUR: unset → red",
    ]


def test_plan_says_what_up_would_do_and_why(jobs: Any) -> None:
    done = jobs.run("plan")
    assert (done.returncode, done.stdout.splitlines()) == (
        10,
        [
            "start node 0 on localhost: not running",
            "start node 1 on localhost: not running",
            "generation 1: the job is new",
            "supervise counter: no supervisor runs",
        ],
    )


def test_a_changed_script_begins_a_new_generation(slow: Any) -> None:
    slow.directory.joinpath("job.yaml").write_text(
        slow.directory.joinpath("job.yaml").read_text() + "code: {source: ., exclude: [checkpoints]}\n"
    )
    slow.ok("up")
    script = slow.directory / "counter.py"
    script.write_text(script.read_text() + "\n")
    done = slow.run("plan")
    assert (done.returncode, done.stdout) == (10, "generation 2: the code changed\n")
    slow.ok("up")
    assert slow.status()["generation"] == 2


def test_code_that_is_not_there_changes_nothing(slow: Any) -> None:
    """It may be on a file system that is not mounted just now."""
    folder = slow.directory / "code"
    folder.mkdir()
    slow.directory.joinpath("counter.py").rename(folder / "counter.py")
    spec = slow.directory / "job.yaml"
    spec.write_text(spec.read_text() + "code: code\n")
    slow.ok("up")
    slow.running()
    folder.rename(slow.directory / "elsewhere")
    for command in (("up",), ("up", "--dry-run"), ("scale", "2")):
        done = slow.run(*command)
        assert (done.returncode, "there is no directory `code`: nothing was changed" in done.stderr) == (2, True), done
    assert slow.status()["generation"] == 1


def test_what_only_the_supervisor_reads_restarts_nothing(slow: Any) -> None:
    slow.ok("up")
    before = {p["pid"] for n in slow.running()["nodes"] for p in n["processes"]}
    done = slow.run("plan", "--set", "recovery.max_restarts=9")
    assert (done.returncode, done.stdout) == (10, "recovery.max_restarts: 3 → 9: nothing to restart\n")
    told = json.loads(slow.run("plan", "--set", "recovery.max_restarts=9", "-o", "json").stdout)
    assert (told["steps"], told["changes"]) == (
        [],
        [
            {
                "key": "recovery.max_restarts",
                "old": 3,
                "new": 9,
                "restarts": [],
                "effect": "nothing to restart",
            }
        ],
    )
    up = slow.run("up", "--set", "recovery.max_restarts=9")
    assert (up.returncode, up.stderr.splitlines()[0]) == (0, "recovery.max_restarts: 3 → 9: nothing to restart")
    assert slow.run("plan", "--set", "recovery.max_restarts=9").returncode == 0
    assert {p["pid"] for n in slow.status()["nodes"] for p in n["processes"]} == before


def test_a_secret_with_another_value_begins_a_new_generation(slow: Any) -> None:
    spec = slow.directory / "job.yaml"
    spec.write_text(spec.read_text() + "secrets: {PIN: {file: pin.txt}}\n")
    pin = slow.directory / "pin.txt"
    pin.write_text("1234")
    slow.ok("up")
    assert slow.run("plan").returncode == 0
    pin.write_text("4321")
    cause = "secrets.PIN: another value, which is not shown"
    done = slow.run("plan")
    assert (done.returncode, done.stdout) == (10, f"generation 2: {cause}\n")
    assert f"generation 2: {cause}" in slow.run("up").stderr
    assert slow.run("plan").returncode == 0
    # Neither value can be guessed from what is written down, but in the one file that processes read.
    state = Path(slow.environ["JOBCTL_STATE_DIR"])
    plain = sha256(b"4321").hexdigest().encode()
    assert holding(state, plain) == []
    key = state / "jobs" / "counter" / "secrets.key"
    assert key.stat().st_mode & 0o777 == 0o600


def test_what_is_no_code_restarts_nothing(slow: Any) -> None:
    spec = slow.directory / "job.yaml"
    spec.write_text(spec.read_text() + "code: .\n")
    slow.ok("up")
    spec.write_text(f"# a comment\n{spec.read_text()}")
    (slow.directory / "hosts.txt").write_text("h1\n")
    (slow.directory / "NOTES.md").write_text("later: more\n")
    slow.ok("report", "-o", "story.html")
    slow.ok("pull", "counter", "results")
    slow.ok("render", "--out", "rendered")
    done = slow.run("plan")
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


def test_stop_keeps_everything_and_up_resumes_from_the_checkpoint(slow: Any, eventually: Any) -> None:
    slow.ok("up")
    eventually(lambda: (slow.status()["nodes"][0]["progress"] or 0) >= 5)
    slow.ok("stop")
    state = slow.status()
    assert (state["phase"], state["reason"]) == ("stopped", "stopped by the user")
    assert [node["processes"][0]["state"] for node in state["nodes"]] != ["running", "running"]
    slow.ok("up")
    assert slow.status()["phase"] == "running"
    eventually(lambda: "from step" in slow.ok("logs", "--generation", "2", "--node", "0"))
    resumed = int(slow.ok("logs", "--generation", "2", "--node", "0").split("from step ")[1].split()[0])
    assert resumed >= 5


def test_restart_begins_a_new_generation_in_place(slow: Any) -> None:
    slow.ok("up")
    assert json.loads(slow.ok("restart", "-o", "json"))["generation"] == 2
    state = slow.status()
    assert (state["phase"], state["generation"], [n["restarts"] for n in state["nodes"]]) == (
        "running",
        2,
        [0, 0],
    )
    assert json.loads(slow.ok("stop", "-o", "json"))["phase"] == "stopped"
    assert json.loads(slow.ok("pull", "-o", "json"))["fetched"]["logs"] >= 2


def test_replaced_launchers_leave_the_job_supervised(slow: Any) -> None:
    """The job is stopped for a moment; its supervisor must not take that for the end."""
    slow.ok("up")
    slow.ok("restart", "--node", "1")
    slow.ok("up", "--set", "env.MORE=1")
    state = slow.status()
    assert (state["phase"], state["supervised"], state["generation"]) == ("running", True, 3)
    assert not any("supervisor ended" in event["message"] for event in slow.events())


def test_fresh_trains_into_a_new_checkpoint_directory(jobs: Any) -> None:
    jobs.ok("up")
    jobs.ok("wait")
    jobs.ok("up", "--fresh")
    jobs.ok("wait")
    checkpoints = jobs.directory / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["fresh-1", "step-0", "step-1"]
    assert (checkpoints / "fresh-1" / "step-0").read_text() == "5"
    assert "generation 2 from step 0" in jobs.ok("logs", "--generation", "2")


def on_a_terminal(jobs: Any, *args: str) -> str:
    """Run a command whose stderr is a terminal, and return what that shows."""
    master, slave = pty.openpty()
    process = jobs.popen(*args, stderr=slave)
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is gone once the command has ended
        while data := os.read(master, 65536):
            shown += data
    os.close(master)
    assert process.wait(60) == 0
    return shown.decode()


@pytest.mark.long
@pytest.mark.parametrize("command", ["stop", "down"])
def test_stop_and_down_show_what_they_wait_for(slow: Any, command: str) -> None:
    script = slow.directory / "counter.py"
    script.write_text("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + script.read_text())
    slow.ok("up", "--no-supervise")
    slow.running()
    shown = on_a_terminal(slow, command, "--timeout", "8s")  # it may stand still before it looks
    assert "waiting for node 0 on localhost, node 1 on localhost to end; SIGKILL in" in shown


def test_another_spec_of_the_same_name_is_told(slow: Any) -> None:
    slow.ok("up")
    (slow.directory / "copy.yaml").write_text((slow.directory / "job.yaml").read_text())
    done = slow.run("up", "copy.yaml")
    assert f"warning: job `counter` was started from {slow.directory}/job.yaml, and becomes what" in done.stderr


def test_down_is_safe_to_repeat_and_leaves_only_history(slow: Any, eventually: Any) -> None:
    slow.ok("up")
    jobs = slow.state / "jobs" / "counter"
    eventually((jobs / "progress.jsonl").exists)
    assert slow.processes()
    assert slow.run("down", "--timeout", "2s").returncode == 0
    assert (slow.processes(), slow.supervisors()) == ({}, [])
    left = sorted(path.name for path in jobs.iterdir())
    assert left == ["events.jsonl", "history", "progress.jsonl"]
    assert slow.run("down").returncode == 0
    assert slow.status()["phase"] == "stopped"
    assert "step 1" in slow.ok("logs", "--rank", "0")  # as collected
    for command, error in (
        (("logs", "--rank", "99"), "error: job `counter` has no rank 99"),
        (("ssh",), "error: node 0 is on no host: the job does not run"),
        (("ssh-config",), "error: job `counter` does not run: it has no nodes"),
    ):
        slip = slow.run(*command)
        assert (slip.returncode, slip.stderr.splitlines()[0]) == (2, error)
    assert sorted(path.name for path in jobs.iterdir()) == left
    (past,) = json.loads(slow.ok("list", "--all", "-o", "json"))
    assert (past["job"], past["phase"], past["target"], past["down"]) == ("counter", "stopped", "local", True)
    slow.ok("prune", "--yes")
    assert not jobs.exists()


def test_list_shows_what_is_up_and_wait_times_out_with_124(slow: Any) -> None:
    assert json.loads(slow.ok("list", "-o", "json")) == []
    slow.ok("up")
    (job,) = json.loads(slow.ok("list", "-o", "json"))
    assert (job["job"], job["phase"], job["target"], job["replicas"]) == (
        "counter",
        "running",
        "local",
        "2/2",
    )
    late = slow.run("wait", "--timeout", "0.2s", "-o", "json")
    told = json.loads(late.stdout)
    assert (late.returncode, told["job"], told["phase"] in ("starting", "running")) == (124, "counter", True)


def test_down_ends_a_supervisor_that_has_not_said_yet_that_it_is_one(jobs: Any) -> None:
    """Whoever kills `up` just after it has started its supervisor leaves one that is still loading."""
    import signal

    jobs.ok("up", "--no-supervise")
    mark = {"JOBCTL_SUPERVISES": str(jobs.state / "jobs" / "counter")}
    loading = subprocess.Popen(["sleep", "60"], env={**jobs.environ, **mark})
    jobs.ok("down")
    assert loading.poll() == -signal.SIGTERM


def test_status_says_at_once_that_everything_was_killed(slow: Any) -> None:
    slow.ok("up")
    kill(*slow.supervisors(), *slow.processes())
    state = slow.status()
    assert (state["phase"], state["supervised"]) == ("failed", False)
    assert "nothing of it runs" in state["reason"]
    assert slow.run("down").returncode == 0


def test_a_job_that_is_not_known(jobs: Any) -> None:
    done = jobs.run("status", "nobody")
    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (
        2,
        "",
        "error: no job `nobody` is known here",
    )


def test_secrets_reach_the_process_and_no_file_but_one(slow: Any) -> None:
    slow.set(TOKEN="hunter2-very-secret")
    spec = slow.directory / "job.yaml"
    spec.write_text(spec.read_text() + "secrets: {API_TOKEN: {env: TOKEN}}\n")
    slow.ok("up")
    slow.running()
    assert slow.ok("exec", "--node", "0", "--", "sh", "-c", "echo $API_TOKEN") == "hunter2-very-secret\n"
    found = sorted(holding(slow.state, b"hunter2-very-secret"))
    assert [(path.relative_to(slow.state).as_posix(), oct(path.stat().st_mode & 0o777)) for path in found] == [
        ("jobs/counter/host/environ.json", "0o600"),
        ("jobs/counter/host/secrets/secrets.json", "0o600"),
    ]
    for command in (("status",), ("plan", "--explain"), ("events",), ("status", "-o", "json"), ("render",)):
        assert "hunter2" not in slow.run(*command).stdout
    spec.write_text(spec.read_text().replace("secrets: {API_TOKEN: {env: TOKEN}}\n", ""))
    slow.ok("up")
    assert not (slow.state / "jobs/counter/host/secrets/secrets.json").exists()


SAVING = """\
import os, signal, sys, time
def save(*given):
    if os.environ["JOBCTL_NODE"] == "0":
        time.sleep(7)  # a lease of 3 s was renewed not long before
        open("saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
for step in range(100000):
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
    time.sleep(0.02)
"""


def test_down_lets_a_node_save_for_longer_than_its_lease_after_the_others(jobs: Any, eventually: Any) -> None:
    (jobs.directory / "counter.py").write_text(SAVING)
    jobs.ok("up", "--set", "recovery.host_timeout=3s")
    eventually(lambda: all(node["progress"] for node in jobs.status()["nodes"]))
    jobs.ok("down", "--timeout", "60s")
    assert (jobs.directory / "saved").exists()
