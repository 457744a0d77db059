"""What pods print, what happens to them, and commands inside of them: over cut connections and restarts."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any

import pytest

from tests.kube.server import ApiServer
from tests.kube.world import World
from tests.tools import commands
from tests.tools.ports import free_ports

UP = ("up", "--target", "kubernetes")
ZERO, ONE = "resnet-0-abcde", "resnet-1-abcde"


def test_logs_are_merged_by_time(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    for pod, stamp, text in (
        (ONE, "2026-01-01T00:00:01.000000001Z", "rank1 | second"),
        (ZERO, "2026-01-01T00:00:00.5Z", "rank0 | first"),
        (ZERO, "2026-01-01T00:00:02.25Z", "rank0 | third | with bars"),
    ):
        api.print(pod, text, stamp)
    ran = jobctl("logs", "resnet")
    assert ran.out.splitlines() == ["node0 rank0 | first", "node1 rank1 | second", "node0 rank0 | third | with bars"]
    assert jobctl("logs", "resnet", "--node", "1").out == "node1 rank1 | second\n"
    assert jobctl("logs", "resnet", "--rank", "0", "--tail", "1").out == "node0 rank0 | third | with bars\n"
    assert jobctl("logs", "resnet", "--since", "2026-01-01T00:00:01+00:00").out.splitlines() == [
        "node1 rank1 | second",
        "node0 rank0 | third | with bars",
    ]
    first = json.loads(jobctl("logs", "resnet", "-o", "json").out.splitlines()[0])
    first.pop("time")
    assert first == {"node": 0, "rank": 0, "generation": 0, "log": "workerlog.0", "line": "first"}
    assert jobctl("logs", "resnet", "--node", "7").code == 2
    generation = jobctl("logs", "resnet", "--generation", "2")
    assert (generation.code, generation.err.splitlines()[1]) == (2, "hint: no generation of it is known")


def test_several_processes_of_a_pod_are_told_apart(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP, "--set", "devices=cpu:2")
    for text in ("launcher's own words", "rank2 | from 2", "rank3 | from 3"):
        api.print(ONE, text)
    told = ["node1 launcher | launcher's own words", "node1 rank2 | from 2", "node1 rank3 | from 3"]
    assert jobctl("logs", "resnet").out.splitlines() == told
    assert jobctl("logs", "resnet", "--rank", "3").out.splitlines() == told[2:]
    assert jobctl("logs", "resnet", "--rank", "2", "--tail", "1").out.splitlines() == told[1:2]
    api.print(ONE, "rank3 | more from 3")
    assert jobctl("logs", "resnet", "--since", "1h", "--tail", "1").out.splitlines() == [
        *told[:2],
        "node1 rank3 | more from 3",
    ]
    told.append("node1 rank3 | more from 3")
    assert jobctl("down", "resnet").code == 0
    assert jobctl("logs", "job.yaml").out.splitlines() == told


def test_a_log_that_cannot_be_read_hides_no_other(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    api.print(ONE, "rank1 | step 1")
    api.fail("get", "pods/log", 500, name=ZERO)  # the kubelet of its node is off
    ran = jobctl("logs", "resnet")
    assert (ran.code, ran.out) == (4, "node1 rank1 | step 1\n")
    assert f"cannot get Pod {ZERO}/log in namespace {api.namespace}" in ran.err


def test_below_an_operator_a_pod_has_one_log(jobctl: Any, world: World, api: ApiServer) -> None:
    text = "name: resnet\nframework: paddle\nimage: paddle:3\nmodule: train\nnodes: 2\ncheckpoint: /ck\n"
    Path("job.yaml").write_text(f"{text}kubernetes: {{operator: paddle-operator}}\n")
    jobctl(*UP)
    api.print("resnet-worker-1", "rank7 | is the script's own word")
    assert jobctl("logs", "resnet").out == "node1 rank1 | rank7 | is the script's own word\n"


@pytest.mark.parametrize("after", [0, 3])
def test_logs_are_followed_over_cuts_without_loss_or_repeats(
    jobctl: Any, world: World, api: ApiServer, after: int
) -> None:
    jobctl(*UP)
    for number in range(5):
        api.print(ZERO, f"old {number}")
    api.fail("get", "pods/log", "cut", times=6, after=after)

    def work() -> None:
        for number in range(60):
            api.print(ZERO if number % 2 else ONE, f"step {number}")
            api.print(ZERO, "the same again")  # equal lines are no repeats
            time.sleep(0.03)
        for pod in (ZERO, ONE):
            world.end(pod)
        world.condition("Job", "resnet", "Complete")

    threading.Timer(0.3, work).start()
    ran = jobctl("logs", "resnet", "-f")
    expected = Counter([f"old {n}" for n in range(5)] + [f"step {n}" for n in range(60)] + ["the same again"] * 60)
    assert (ran.code, Counter(line.split(" | ")[1] for line in ran.out.splitlines())) == (0, expected)


def test_logs_are_followed_over_restarts(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    api.print(ZERO, "run 1")

    def work() -> None:
        api.print(ZERO, "run 1 ends")
        world.restart(ZERO)
        time.sleep(1.5)
        api.print(ZERO, "run 2")
        time.sleep(0.2)
        for pod in (ZERO, ONE):
            world.end(pod)
        world.condition("Job", "resnet", "Complete")

    threading.Timer(0.5, work).start()
    lines = [line.split(" | ")[1] for line in jobctl("logs", "resnet", "-f").out.splitlines()]
    assert lines == ["run 1", "run 1 ends", "run 2"]
    world_restarts = jobctl("logs", "resnet").out.splitlines()
    assert [line.split(" | ")[1] for line in world_restarts] == ["run 1", "run 1 ends", "run 2"]


def test_a_pod_that_comes_later_is_followed_too(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    api.print(ZERO, "here")

    def work() -> None:
        job = api.get("Job", "resnet")
        world.end(ONE, 1)
        labels = {"batch.kubernetes.io/job-completion-index": "1"}
        time.sleep(1.1)
        world.pod("resnet-1-fghij", job["spec"]["template"], labels, job)
        api.print("resnet-1-fghij", "in its place")
        time.sleep(1.0)
        for pod in (ZERO, "resnet-1-fghij"):
            world.end(pod)
        world.condition("Job", "resnet", "Complete")

    threading.Timer(0.3, work).start()
    lines = jobctl("logs", "resnet", "-f").out.splitlines()
    assert lines == ["node0 launcher | here", "node1 launcher | in its place"]
    assert jobctl("status", "resnet", "-o", "json").json["nodes"][1]["restarts"] == 1


def _running(world: World) -> list[Any]:
    # A pod that has just been made has no status yet.
    return [pod for pod in world.pods() if pod.get("status", {}).get("phase") == "Running"]


def test_up_follow_streams_and_ends_with_the_result(jobctl: Any, world: World, api: ApiServer) -> None:
    def work() -> None:
        deadline = time.monotonic() + 180
        while len(_running(world)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        api.print(ONE, "boom")
        world.end(ONE, 3, "boom")
        world.condition("Job", "resnet", "Failed", "BackoffLimitExceeded")

    threading.Thread(target=work).start()
    ran = jobctl(*UP, "--follow")
    assert (ran.code, "node1 launcher | boom" in ran.out or "boom" in ran.err) == (1, True)


def test_events_of_jobctl_and_of_the_cluster(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    world.event("e1", ONE, "FailedScheduling", "0/3 nodes are available", count=3)
    world.event("e2", "resnet-big-0", "Killing", "of another job")
    ran = jobctl("events", "resnet", "-o", "json")
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert [event["message"] for event in told if event["event"] == "cluster"] == [
        f"Pod {ONE}: FailedScheduling: 0/3 nodes are available (3 times)"
    ]
    assert [event["event"] for event in told if event["event"] != "cluster"][:2] == ["up", "step"]


def _exec(here: Path, *argv: str, stdin: IO[bytes] | None = None) -> subprocess.CompletedProcess[bytes]:
    return commands.run_bytes(("exec", "resnet", *argv), here, os.environ, 180.0, stdin)


def test_exec_passes_output_errors_and_the_exit_code(jobctl: Any, world: World, here: Path) -> None:
    jobctl(*UP)
    ran = _exec(here, "--node", "1", "--", "sh", "-c", "echo out; echo err >&2; exit 9")
    assert (ran.returncode, ran.stdout, ran.stderr) == (9, b"out\n", b"err\n")
    assert f"/pods/{ONE}/exec" in next(request for request in world.api.requests if "/exec" in request)


def test_exec_passes_input_and_its_end(jobctl: Any, world: World, here: Path) -> None:
    jobctl(*UP)
    data = os.urandom(1 << 18)
    (here / "input").write_bytes(data)
    with subprocess.Popen(["cat", here / "input"], stdout=subprocess.PIPE) as piped:
        ran = _exec(here, "--node", "0", "--", "cat", stdin=piped.stdout)
    assert (ran.returncode, ran.stdout == data) == (0, True)


def test_exec_of_what_does_not_read_all_of_its_input(jobctl: Any, world: World, here: Path) -> None:
    jobctl(*UP)
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as yes:
        ran = _exec(here, "--node", "0", "--", "sh", "-c", "head -1; exit 9", stdin=yes.stdout)
        yes.kill()
    # What is sent to a connection that has just been closed may cost the answer: then that is told.
    assert ran.returncode == 9 or (ran.returncode == 3 and b"broke before `sh` ended" in ran.stderr), ran


def test_exec_has_the_terminal(jobctl: Any, world: World, here: Path) -> None:
    jobctl(*UP)
    world.api.protocols = ("v4.channel.k8s.io",)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    line = [
        sys.executable,
        "-m",
        "jobctl",
        "exec",
        "resnet",
        "--node",
        "0",
        "--",
        "sh",
        "-c",
        "test -t 0 && echo ready; read a; stty size; echo got $a",
    ]
    # Python's own view of the environment: readline, which pytest loads, puts COLUMNS and LINES into the process's.
    process = subprocess.Popen(line, cwd=here, env=dict(os.environ), stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen, typed = b"", False
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if not typed and b"ready" in seen:  # before, what is typed is lost when the terminal becomes raw
            os.write(master, b"yes\r")
            typed = True
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 4096)
            except OSError:  # the command has ended, and all that it wrote was read
                break
    assert (process.wait(60), b"33 101" in seen, b"got yes" in seen) == (0, True, True)


@pytest.mark.long
def test_exec_where_it_cannot(jobctl: Any, world: World, here: Path) -> None:
    jobctl(*UP)
    missing = _exec(here, "--node", "0", "--", "no-such-command")
    assert (missing.returncode, b"no-such-command" in missing.stderr) == (127, True)
    world.api.fail("get", "pods/exec", "cut")
    cut = _exec(here, "--node", "0", "--", "sleep", "5")
    assert (cut.returncode, cut.stdout, b"broke before `sleep` ended" in cut.stderr) == (3, b"begun\n", True)
    world.api.denied.add(("get", "pods/exec"))
    denied = _exec(here, "--node", "0", "--", "true")
    assert (denied.returncode, denied.stderr.decode().splitlines()) == (
        3,
        [
            f"error: test: no right to get Pod {ZERO}/exec in namespace ml",
            'hint: ask for a Role in that namespace with apiGroups [""], resources [pods/exec], verbs [get]',
        ],
    )
    world.end(ONE)
    ended = _exec(here, "--node", "1", "--", "true")
    assert (ended.returncode, ended.stderr.decode().splitlines()[0]) == (2, "error: node 1 has no running pod")


def _echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"heard " + connection.recv(100))


def test_forward_leads_to_a_port_of_a_pod(jobctl: Any, world: World, here: Path) -> None:
    """The test is both: the pod, and whoever connects to the port that is forwarded."""
    jobctl(*UP)
    with socket.create_server(("127.0.0.1", 0)) as pod:
        theirs, (ours,) = pod.getsockname()[1], free_ports(1)
        threading.Thread(target=_echo, args=(pod,), daemon=True).start()
        line = [sys.executable, "-m", "jobctl", "forward", "resnet", f"{ours}:1:{theirs}"]
        with subprocess.Popen(line, cwd=here, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == f"127.0.0.1:{ours} -> port {theirs} of node 1 on pod {ONE}\n"
            with socket.create_connection(("127.0.0.1", ours), 60) as connection:
                connection.sendall(b"hello")
                assert connection.recv(100) == b"heard hello"
            world.api.denied.add(("get", "pods/portforward"))
            with socket.create_connection(("127.0.0.1", ours), 60) as connection:
                assert connection.recv(100) == b""
            assert f"no right to get Pod {ONE}/portforward in namespace ml" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
    assert f"/pods/{ONE}/portforward?ports={theirs}" in next(r for r in world.api.requests if "/portforward" in r)


def test_pull_fetches_logs(jobctl: Any, world: World, api: ApiServer, here: Path) -> None:
    jobctl(*UP)
    api.print(ZERO, "rank0 | kept")
    assert jobctl("pull", "resnet", "out").code == 0
    assert (here / "out" / "node-0" / "logs" / "0" / "workerlog.0").read_text() == "kept\n"
    api.fail("get", "pods/log", 500, name=ONE)
    ran = jobctl("pull", "resnet", "more")
    assert (ran.code, f"cannot get Pod {ONE}/log" in ran.err) == (4, True)
