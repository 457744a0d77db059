"""What is seen of a job on this machine, and run inside of it: logs, `exec` and `run`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store.jobdir import job_dir
from jobctl.jobspec.deploy.store.processes import start_ticks
from jobctl.jobspec.deploy.targets.local.deployer import Local
from jobctl.jobspec.operations.inspect import exec as exec_in
from jobctl.jobspec.operations.reporter import SILENT


def test_follow_streams_the_logs_and_exits_with_the_result(jobs: Any) -> None:
    done = jobs.run("up", "--follow")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(
        f"node{node} rank{node} | {text}"
        for node in (0, 1)
        for text in ("generation 1 from step 0", *(f"step {step}" for step in range(1, 6)))
    )


def test_logs_can_be_chosen(jobs: Any) -> None:
    jobs.ok("up")
    jobs.ok("wait")
    assert jobs.ok("logs", "--rank", "1", "--tail", "2").splitlines() == [
        "node1 rank1 | step 4",
        "node1 rank1 | step 5",
    ]
    stamped = jobs.ok("logs", "--node", "0", "--timestamps", "--tail", "1").split()
    assert stamped[0].startswith("20")
    lines = [json.loads(line) for line in jobs.ok("logs", "-o", "json", "--rank", "0").splitlines()]
    assert [line["line"] for line in lines][-1] == "step 5"
    assert {(line["node"], line["rank"], line["generation"], line["log"]) for line in lines} == {
        (0, 0, 1, "workerlog.0")
    }
    assert jobs.ok("logs", "--since", "0s") == jobs.ok("logs", "--since", "0s", "--rank", "1") == ""
    slip = jobs.run("logs", "--rank", "2")
    assert (slip.returncode, slip.stdout) == (2, "")
    assert slip.stderr.splitlines() == ["error: job `counter` has no rank 2", "hint: its ranks are 0 to 1"]
    elsewhere = jobs.run("logs", "--node", "0", "--rank", "1")
    assert (elsewhere.returncode, elsewhere.stdout) == (2, "")
    assert elsewhere.stderr.splitlines() == [
        "error: rank 1 of job `counter` is not on node 0",
        "hint: it is on node 1: leave out `--node`, or name that one",
    ]
    for option, what in (("--node", "node 7"), ("--generation", "generation 7")):
        done = jobs.run("logs", option, "7")
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: job `counter` has no {what}")


def test_exec_has_the_environment_of_the_node(slow: Any) -> None:
    slow.ok("up")
    slow.running()
    code = "import os; print(os.environ['JOBCTL_NODE'], os.environ['NODE_RANK'], os.getcwd())"
    out = slow.ok("exec", "--node", "1", "--", "python3", "-c", code)
    assert out == f"1 1 {slow.directory}\n"
    assert slow.run("exec", "--node", "1", "--", "sh", "-c", "exit 42").returncode == 42
    assert slow.run("exec", "--node", "7", "--", "true").returncode == 2
    for command, code, why in (
        ("/gone/command", 127, "not found on the node's PATH"),
        ("/etc", 126, "Permission denied"),
    ):
        done = slow.run("exec", "--node", "1", "--", command)
        assert (done.returncode, done.stderr) == (code, f"error: {command}: {why}\n")
    slow.ok("stop", "--timeout", "1s")
    done = slow.run("exec", "--node", "1", "--", "true")
    assert (done.returncode, "it has no running process" in done.stderr) == (2, True)


@pytest.mark.long
def test_exec_waits_for_a_node_that_begins(jobs: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = jobs.directory / "job.yaml"
    path.write_text(path.read_text() + "setup: while [ ! -e go ]; do sleep 0.05; done\n")
    (jobs.directory / "hold").touch()
    up = jobs.popen("up", "--no-supervise")
    eventually(lambda: (nodes := jobs.status()["nodes"]) and {node["state"] for node in nodes} == {"starting"})
    wait = exec_in.pause

    def pause(seconds: float) -> None:
        (jobs.directory / "go").touch()
        wait(seconds)

    monkeypatch.setattr(exec_in, "pause", pause)
    deployer = Local(job_dir(jobs.state, "counter"))
    assert exec_in.exec_in_node(deployer, "1", ["sh", "-c", "echo $JOBCTL_NODE > entered"], SILENT) == 0
    assert ((jobs.directory / "entered").read_text(), (jobs.directory / "go").exists()) == ("1\n", True)
    (jobs.directory / "hold").unlink()
    assert up.wait(120) == 0


def test_run_needs_no_running_job(jobs: Any) -> None:
    out = jobs.ok("run", "--set", "env.COLOUR=red", "--", "sh", "-c", "echo $COLOUR $JOBCTL_CHECKPOINT_DIR; pwd")
    assert out.splitlines() == [f"red {jobs.directory}/checkpoints", str(jobs.directory)]


def test_run_passes_sigterm_on_and_leaves_nothing(jobs: Any, eventually: Any, tmp_path: Path) -> None:
    began = tmp_path / "began"
    script = f"import os, time; open({str(began)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        running = jobs.popen("run", "--", sys.executable, "-c", script)
        pid = int(eventually(lambda: began.exists() and began.read_text()))
        running.send_signal(number)
        running.communicate(timeout=120)
        assert running.returncode == (143 if number == signal.SIGTERM else -9)
        eventually(lambda pid=pid: start_ticks(pid) is None)
        began.unlink()


@pytest.mark.long
def test_the_last_lines_are_those_of_processes_that_are_there(jobs: Any) -> None:
    """Of a framework whose launcher takes no time to load: it has none."""
    whole = ("framework=mindspore", "per=process", "command=[sh, -c, echo $$JOBCTL_GENERATION]")
    options = [word for one in whole for word in ("--set", one)]
    assert jobs.run("up", *options, "--set", "devices=cpu:2", "--follow").returncode == 0
    assert jobs.run("up", *options, "--follow").returncode == 0
    lines = sorted(jobs.ok("logs", "--tail", "1").splitlines())
    assert lines == ["node0 rank0 | 2", "node1 rank1 | 2", "node2 scheduler | 2"]


def test_pull_fetches_logs_and_outputs(jobs: Any) -> None:
    jobs.directory.joinpath("runs").mkdir()
    jobs.directory.joinpath("runs", "scalars.csv").write_text("1,2\n")
    jobs.ok("up", "--set", "outputs=[runs/]")
    jobs.ok("wait")
    jobs.ok("pull", "counter", "results")
    found = sorted(
        path.relative_to(jobs.directory / "results").as_posix()
        for path in (jobs.directory / "results").rglob("*")
        if path.is_file() and path.name in ("scalars.csv", "workerlog.0")
    )
    assert found == [
        "localhost/node-0/logs/1/workerlog.0",
        "localhost/node-1/logs/1/workerlog.0",
        "localhost/outputs/runs/scalars.csv",
    ]
