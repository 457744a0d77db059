"""Jobs of the real PaddlePaddle on this machine: they end well, and survive whatever dies."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store.processes import start_ticks
from tests.tools.etcd import Etcd, b64, etcd
from tests.tools.frameworks import Name, python_of
from tests.tools.paddlescripts import COLLECTIVE, ENDING, SERVED

SPEC = """\
name: {name}
framework: paddle
script: train.py
nodes: 2
devices: cpu:2
checkpoint: {directory}/checkpoints
env: {{OMP_NUM_THREADS: "1", STEPS: "${{STEPS}}", DELAY: "${{DELAY}}"}}
"""
# A standby of two launchers and four ranks imports Paddle six times in each generation, behind what trains: it would hardly
# be ready when the test kills a process, and it is not what the test is about.
COLD = "--set=recovery.standby='off'"
UNCHECKED = "--skip-check"  # the preflight of parameter servers, and with an etcd, imports Paddle once more


@pytest.fixture
def start(jobs: Any) -> Callable[..., Any]:
    """Makes a job of a script and more of a spec, on the environment with that Paddle."""

    def made(paddle: Name, script: str, more: str = "", *, steps: int, delay: float, name: str = "learner") -> Any:
        python = python_of(paddle)
        directory: Path = jobs.directory
        (directory / "checkpoints").mkdir(exist_ok=True)
        (directory / "train.py").write_text(script)
        (directory / "job.yaml").write_text(SPEC.format(name=name, directory=directory) + more)
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        jobs.environ = {name: value for name, value in jobs.environ.items() if name != "PYTHONHOME"}
        jobs.set(PATH=path, STEPS=str(steps), DELAY=str(delay))
        return jobs

    return made


def progress(jobs: Any, generation: int, step: int, role: str = "trainer") -> dict[str, Any] | None:
    """Return the status once all nodes of a role have got that far in that generation."""
    state: dict[str, Any] = jobs.status()
    nodes = [node for node in state["nodes"] if node["role"] == role]
    there = state["generation"] == generation and all((node["progress"] or 0) >= step for node in nodes)
    return state if there and state["phase"] == "running" else None


def add_hold(jobs: Any, step: int) -> None:
    """Have all wait at a step until there is a file `go` beside the checkpoint, however slow the test is."""
    path = jobs.directory / "job.yaml"
    path.write_text(path.read_text().replace("env: {", f'env: {{HOLD: "{step}", '))


def finals(jobs: Any) -> list[list[str]]:
    """Return the words of the last lines that ranks have printed, in the order of ranks."""
    lines = [line.partition("final ")[2].split() for line in jobs.ok("logs").splitlines() if "| final " in line]
    return sorted(lines)


@pytest.mark.long
def test_collective_ends_the_same_whatever_dies(start: Any, eventually: Any) -> None:
    """A process of one node, and Paddle's launcher of the other: the gang starts again from the checkpoint.

    Several ranks on a node: tests/fleet/frameworks/test_paddle.py. That launcher writes its whole environment into files, which are gone with the job, and never collected.
    """
    jobs = start("paddle", COLLECTIVE, "secrets: [TOKEN]\n", steps=120, delay=0.02)
    add_hold(jobs, 90)
    jobs.set(PADDLE_NNODES="7", POD_IP="10.9.9.9", MASTER_ADDR="10.9.9.9", PADDLE_TRAINER_ENDPOINTS="10.9.9.9:1")
    jobs.set(HTTP_PROXY="http://10.9.9.9:1", http_proxy="http://10.9.9.9:1", TOKEN="s3cret-of-the-test")
    jobs.ok("up", COLD, "--set=devices=cpu")
    state = eventually(lambda: progress(jobs, 1, 20), 240)
    (launcher,) = (
        pid for pid, line in jobs.processes().items() if "paddle.distributed.launch" in line and "--rank 0" in line
    )
    before = {process["pid"]: start_ticks(process["pid"]) for node in state["nodes"] for process in node["processes"]}
    for pid in ([*before][1], launcher):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: progress(jobs, 2, 60), 240)
    assert not any(start_ticks(pid) == began for pid, began in before.items() if began is not None)
    folders = [Path(os.readlink(link)) for link in jobs.state.rglob("scratch")]
    assert len(folders) == 2
    assert all((folder / "envlog.0").exists() and folder.stat().st_mode & 0o777 == 0o700 for folder in folders)
    (jobs.directory / "checkpoints" / "go").touch()
    assert jobs.run("wait", "--timeout", "200s", timeout=240).returncode == 0, jobs.ok("events")
    every = finals(jobs)
    assert [(rank, world, steps, role) for rank, world, steps, _, role in every] == [
        (str(rank), "2", "120", str(rank)) for rank in range(2)
    ]
    kept = (jobs.directory / "checkpoints" / "state").read_text().split()
    assert {loss for _, _, _, loss, _ in every} == {kept[1]}
    jobs.ok("down")
    assert [folder for folder in folders if folder.exists()] == []
    written = [path for path in jobs.state.rglob("*") if path.is_file() and b"s3cret-of-the-test" in path.read_bytes()]
    assert written == []


PS = "mode: ps\nps: {servers: 1, trainers: 3}\n"


@pytest.mark.long
def test_a_rank_that_ends_while_rank_0_does_makes_nothing_fail(start: Any) -> None:
    """Rank 0 serves the store that the other is connected to; by libuv it aborts (SIGABRT)."""
    jobs = start("paddle", ENDING, "recovery: {max_restarts: 0}\n", steps=0, delay=0.0)
    os.mkfifo(jobs.directory / "checkpoints" / "pipe")
    (jobs.directory / "checkpoints" / "here").touch()
    jobs.ok("up", "--set=devices=cpu:1", COLD, UNCHECKED)
    assert jobs.run("wait", "--timeout", "200s", timeout=240).returncode == 0, jobs.ok("logs")
    assert not (jobs.directory / "checkpoints" / "here").exists()


@pytest.mark.long
def test_parameter_servers(start: Any, eventually: Any) -> None:
    """A trainer that dies starts again alone, a server takes all along; servers end with the trainers.

    Several servers: tests/fleet/frameworks/test_paddle.py.
    """
    jobs = start("paddle-ps", SERVED, PS, steps=100000, delay=0.05)
    jobs.ok("up", UNCHECKED)
    state = eventually(lambda: progress(jobs, 1, 20), 240)
    assert [(n["node"], n["role"], len(n["processes"])) for n in state["nodes"]] == [
        (0, "trainer", 2),
        (1, "trainer", 1),
        (2, "server", 1),
    ]
    others = [
        p["pid"] for node in state["nodes"] for p in node["processes"] if (node["node"], p["local_rank"]) != (0, 1)
    ]
    os.kill(state["nodes"][0]["processes"][1]["pid"], signal.SIGKILL)
    eventually(lambda: jobs.status()["nodes"][0]["restarts"] == 1)
    state = eventually(lambda: progress(jobs, 1, 60), 240)
    pids = [p["pid"] for node in state["nodes"] for p in node["processes"]]
    assert set(others) < set(pids)
    os.kill(state["nodes"][2]["processes"][0]["pid"], signal.SIGKILL)
    eventually(lambda: progress(jobs, 2, 20), 240)
    (jobs.directory / "checkpoints" / "end").touch()
    assert jobs.run("wait", "--timeout", "200s", timeout=240).returncode == 0, jobs.ok("events")
    assert [words[:2] for words in finals(jobs)] == [[str(rank), "3"] for rank in range(3)]
    eventually(lambda: [(n["state"], n["exit_code"]) for n in jobs.status()["nodes"]] == [("exited", 0)] * 3, 60)
    story = "\n".join(event["message"] for event in jobs.events())
    for line in (
        "rank 1 was killed by SIGKILL; it was started again while the others went on",
        "server 0 was killed by SIGKILL",
    ):
        assert line in story
    assert jobs.status()["phase"] == "succeeded"


@pytest.mark.long
@pytest.mark.release("tests/local/test_paddle.py::test_parameter_servers")
def test_synchronous_trainers_start_again_together(start: Any, eventually: Any) -> None:
    """With gloo, too: trainers meet in files below the checkpoint directory. Servers end without a supervisor as well."""
    # The script trains asynchronously: with `a_sync = False` the wheel of 3.0.0 ends in SIGSEGV (SendBarrierOp).
    more = "mode: ps\nps: {servers: 1, trainers: 2, sync: true, gloo: 1}\n"
    jobs = start("paddle-ps", SERVED, more, steps=100000, delay=0.05)
    jobs.ok("up", UNCHECKED)
    state = eventually(lambda: progress(jobs, 1, 5), 240)
    os.kill(state["nodes"][0]["processes"][0]["pid"], signal.SIGKILL)
    eventually(lambda: progress(jobs, 2, 5), 240)
    jobs.kill_supervisor()
    (jobs.directory / "checkpoints" / "end").touch()
    assert jobs.run("wait", "--timeout", "200s", timeout=240).returncode == 0
    # The job has succeeded with its trainers: a server ends once its launcher has heard so.
    eventually(lambda: all((n["state"], n["exit_code"]) == ("exited", 0) for n in jobs.status()["nodes"]), 60)
    assert [n["role"] for n in jobs.status()["nodes"]] == ["trainer", "trainer", "server"]


@pytest.mark.long
def test_a_paddle_without_parameter_servers_is_not_tried_again(start: Any) -> None:
    jobs = start("paddle", SERVED, "mode: ps\nps: {servers: 1, trainers: 1}\n", steps=3, delay=0.0)
    done = jobs.run("up")
    told = "Paddle 3.3.1 was built without parameter servers\nhint: take Paddle 3.0.0 or earlier"
    assert (done.returncode, told in done.stderr) == (3, True), done.stderr
    jobs.ok("up", UNCHECKED)
    done = jobs.run("wait", "--timeout", "90s")
    assert (done.returncode, "this Paddle was built without parameter servers" in done.stderr) == (1, True), done.stderr
    assert jobs.status()["generation"] == 1


COUNT = """\
import os, time
for step in range(100000):
    open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(str(step))
    time.sleep(0.05)
"""


@pytest.mark.long
def test_elastic_processes_and_nodes_join_again(start: Any, eventually: Any, tmp_path: Path) -> None:
    """Paddle's launchers regroup by themselves through etcd; one that dies is started again, and joins them.

    Another job in that etcd, whose name begins with this one's, does not notice; nor do proxies. Its first member is lost.
    """
    with etcd(tmp_path / "etcd") as cluster:
        more = f"etcd: {{endpoints: {['127.0.0.1:9', *cluster.endpoints]}}}\nrecovery: {{max_restarts: 9}}\n"
        jobs = start("paddle", COLLECTIVE, more, steps=100000, delay=0.05, name="p10")
        jobs.set(http_proxy="http://10.9.9.9:1")
        (jobs.directory / "count.py").write_text(COUNT)
        jobs.ok("up", UNCHECKED, "--set", "nodes=1", "--set", "devices=cpu", "--set", "script=count.py")
        start("paddle", COLLECTIVE, f"{more}paddle: {{elastic_timeout: 10s}}\n", steps=100000, delay=0.05, name="p1")
        jobs.ok("up", "--set", "nodes=1:2", "--set", "devices=cpu", "--take-over")  # p10 writes no checkpoint
        state = eventually(lambda: goes_on(jobs, 0), 240)
        assert state["replicas"] == "2[1:2]"
        drill = ("drill", "p1", "--yes", "--timeout", "4m", "-o", "json", "--node")
        # Not always none: Paddle kills ranks and starts them again, too, when a node joins late.
        before, known = restarts(jobs, 1), len(kills(jobs, 1))
        told = json.loads(jobs.ok(*drill, "1"))
        assert (told["generation"], told["after"] is None, told["seconds"]["stopped"]) == (1, False, None)
        eventually(lambda: restarts(jobs, 1) > before)  # the others may go on first
        # By Paddle's launcher, or by the node's where that gives up: "peer not ready", if it looks in the wrong moment.
        words = {"was started again while the others went on", "is started again while the others go on"}
        assert words.issuperset(eventually(lambda: kills(jobs, 1)[known:]))
        reached = eventually(lambda: goes_on(jobs, furthest(state)), 240)
        told = json.loads(jobs.ok(*drill, "0", "--container"))
        assert (told["generation"], told["after"] is None, told["seconds"]["stopped"]) == (1, False, None)
        assert any("its launcher was killed" in event["message"] for event in jobs.events())
        eventually(lambda: goes_on(jobs, furthest(reached)), 240)
        assert sorted(p["rank"] for node in jobs.status()["nodes"] for p in node["processes"]) == [0, 1]
        jobs.ok("down", "p1")
        other = json.loads(jobs.ok("status", "p10", "-o", "json"))
        assert [(n["state"], n["restarts"], n["progress"] > 100) for n in other["nodes"]] == [("running", 0, True)]
        jobs.ok("down", "p10")


# Goes on where it was, each node by itself, until there is a file `bug`.
RESUMED = """\
import os, sys, time
folder = os.environ["JOBCTL_CHECKPOINT_DIR"]
path, step = os.path.join(folder, "step." + os.environ["JOBCTL_NODE"]), 0
if os.path.exists(os.path.join(folder, "bug")):
    sys.exit(3)
if os.path.exists(path):
    step = int(open(path).read() or 0)
while True:
    step += 1
    for name in (path, os.environ["JOBCTL_PROGRESS_FILE"]):
        open(name, "w").write(str(step))
    time.sleep(0.05)
"""


@pytest.mark.long
def test_nodes_regroup_more_often_than_a_job_may_fail(start: Any, eventually: Any, tmp_path: Path) -> None:
    """Paddle's launcher counts each time that nodes regroup; with `max_restarts: 1` it would end with the fourth start.

    A failure at each start ends the job all the same.
    """
    with etcd(tmp_path / "etcd") as cluster:
        more = f"etcd: {{endpoints: {cluster.endpoints}}}\nrecovery: {{max_restarts: 1}}\n"
        jobs = start("paddle", RESUMED, f"{more}paddle: {{elastic_timeout: 5s}}\n", steps=0, delay=0.0)
        jobs.ok("up", UNCHECKED, "--set", "nodes=1:2", "--set", "devices=cpu")
        state = eventually(lambda: goes_on_from(jobs, [0, 0]), 240)
        launchers = launchers_of_paddle(jobs)
        for _ in range(3):
            again, steps = ([node[key] for node in state["nodes"]] for key in ("restarts", "progress"))
            have_nodes_regroup(cluster)
            eventually(lambda again=again: all(restarts(jobs, node) > again[node] for node in (0, 1)), 240)
            state = eventually(lambda steps=steps: goes_on_from(jobs, steps), 240)
        assert (launchers_of_paddle(jobs), state["generation"], len(launchers)) == (launchers, 1, 2)
        (jobs.directory / "checkpoints" / "bug").touch()
        have_nodes_regroup(cluster)
        assert jobs.run("wait", "--timeout", "200s", timeout=240).returncode == 1
        assert any("exited with code 3" in event["message"] for event in jobs.events())


def have_nodes_regroup(cluster: Etcd) -> None:
    """Write a node's key once more, as that node does where it was gone: Paddle's launchers take it for a change of nodes."""
    found = cluster.call("/v3/kv/range", key=b64("/paddle/learner."), range_end=b64("/paddle/learner/"))
    first = next(item for item in found["kvs"] if b"/heartbeat/" in base64.b64decode(item["key"]))
    cluster.call("/v3/kv/put", key=first["key"], value=first["value"], lease=first["lease"])


def goes_on_from(jobs: Any, steps: list[int]) -> dict[str, Any] | None:
    """Return the status once each node has gone 20 steps further than it was."""
    state: dict[str, Any] = jobs.status()
    there = all((node["progress"] or 0) > step + 20 for node, step in zip(state["nodes"], steps, strict=True))
    return state if there and state["phase"] == "running" else None


def launchers_of_paddle(jobs: Any) -> set[int]:
    """Return the processes that are Paddle's launchers."""
    return {pid for pid, line in jobs.processes().items() if "paddle.distributed.launch" in line}


def furthest(state: dict[str, Any]) -> int:
    """Return the furthest step of a job."""
    return max((node["progress"] or 0) for node in state["nodes"])


def goes_on(jobs: Any, since: int) -> dict[str, Any] | None:
    """Return the status once two nodes have gone 20 steps further than `since`, all at the same one or nearly so."""
    state: dict[str, Any] = jobs.status()
    steps = [(node["progress"] or 0) for node in state["nodes"] if node["role"] == "trainer"]
    there = len(steps) == 2 and min(steps) > since + 20 and max(steps) - min(steps) < 20
    return state if there and state["phase"] == "running" else None


def kills(jobs: Any, node: int) -> list[str]:
    """Return what events say became of a node's rank after each SIGKILL."""
    killed = f"node {node}: rank {node} was killed by SIGKILL; it "
    said = [event["message"].partition("\n")[0] for event in jobs.events()]
    return [one.removeprefix(killed) for one in said if one.startswith(killed)]


def restarts(jobs: Any, node: int) -> int:
    """Return how often a node's processes were started again."""
    return int(jobs.status()["nodes"][node]["restarts"])
