"""A job with an etcd of its own on real hosts: its leases decide, and the controller may be switched off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.machine import ETCD_IMAGE
from tests.fleet.recovery.run import EVERY, TIMEOUT, Run, begins_with_a_spare, made_and_removed, trainer
from tests.tools.waiting import eventually

MANAGED = f"etcd: {{{{managed: {{{{replicas: 3, image: {ETCD_IMAGE}}}}}}}}}\nrecovery:"


class WithEtcd(Run):
    """A job on h1 and h2, with members of etcd on h1, h2 and h3, and h4 to spare."""

    def __init__(self, directory: Path, made: Fleet, *, change: tuple[str, str] = ("\0", ""), **how: Any) -> None:
        super().__init__(directory, made, change=("recovery:", MANAGED), **how)
        self.rewrite(*change)
        lines = [f"{host.name} addr={host.address}" for host in made.hosts]
        (self.code / "hosts.txt").write_text("\n".join([*lines[:2], f"{lines[2]} roles=etcd", f"{lines[3]} spare"]))

    def rewrite(self, old: str, new: str) -> None:
        """Change the job's spec."""
        path = self.code / "job.yaml"
        path.write_text(path.read_text().replace(old, new))

    def report(self, node: int, host: str) -> dict[str, Any]:
        """What a launcher says, read from outside."""
        home = next(one.home for one in self.fleet.hosts if one.name == host)
        found: dict[str, Any] = json.loads((home / f".jobctl/{host}/counter/node-{node}/report.json").read_text())
        return found

    def all_run(self, generation: int) -> bool:
        """Say whether both nodes run a generation, by what their launchers say."""
        reports = [self.report(0, "h1"), self.report(1, "h2")]
        return all((report["generation"], report["state"]) == (generation, "running") for report in reports)


@pytest.fixture(scope="module")
def four(hosts_of: Callable[[int], Fleet]) -> Fleet:
    return hosts_of(4)


@pytest.fixture
def run(tmp_path: Path, four: Fleet) -> Iterator[Callable[..., WithEtcd]]:
    yield from made_and_removed(WithEtcd, tmp_path, four)


def init_of(host: Host, container: str) -> int:
    """Return the pid of a container's first process."""
    # 0 is what an engine says of one that does not run; to kill 0 would kill these tests.
    return eventually(lambda: int(host.docker("inspect", "--format", "{{.State.Pid}}", container)))


def test_the_controller_is_off_and_what_fails_is_recovered(run: Callable[..., WithEtcd]) -> None:
    job = run()
    without_spare(job)  # to which a node would move whose engine takes longer than a lease to start it again
    job.begin()
    services = [node for node in job.trains()["nodes"] if node["role"] == "etcd"]
    assert [(s["node"], s["name"], s["host"], s["state"]) for s in services] == [
        (None, "etcd-0", "h3", "running"),
        (None, "etcd-1", "h1", "running"),
        (None, "etcd-2", "h2", "running"),
    ]
    # Whose label is not a number hinders nobody who looks at the hosts, and can be read.
    hosts = job.where
    checked, listed = job.run("check", *hosts, "-o", "json"), job.run("list", *hosts, "-o", "json")
    assert (checked.returncode, listed.returncode) == (0, 0), checked.stdout + checked.stderr + listed.stderr
    names = [(one["node"], one["name"]) for one in json.loads(listed.stdout)["hosts"][0]["jobs"]]
    assert names == [(0, None), (None, "etcd-1")]
    said = job.run("logs", "--node", "etcd-0", "--tail", "2")
    assert (said.returncode, len(said.stdout.splitlines())) == (0, 2), said.stderr
    assert [path.name for host in job.fleet.hosts for path in (host.home / ".jobctl").glob(".check-*")] == []
    os.kill(job.supervisor_pid(), signal.SIGKILL)
    time.sleep(4.0)
    os.kill(trainer(job.fleet[1]), signal.SIGKILL)
    eventually(lambda: job.all_run(2))
    os.kill(init_of(job.fleet[0], "jobctl-counter-0"), signal.SIGKILL)
    eventually(lambda: job.all_run(3))
    supervisor = job.start("supervise")
    state = job.ends_well()
    assert supervisor.wait(120) == 0
    assert (state["generation"], state["nodes"][0]["restarts"], len(job.resumed())) == (3, 2, 3)
    told = [event["message"] for event in job.events() if event["event"] == "failure"]
    assert told == [
        "node 1: rank 1 was killed by SIGKILL; the launchers decided",
        "node 0: its launcher was started again; the launchers decided",
    ]


def test_a_host_that_is_shut_down_comes_back_and_a_job_that_is_over_stays_over(run: Callable[..., WithEtcd]) -> None:
    """Nobody watches. Engines start containers again: with the host, after the end, and as they are started again."""
    job = run()
    without_spare(job)  # which would take the node
    job.begin()
    os.kill(job.supervisor_pid(), signal.SIGKILL)
    job.fleet[1].stop_engine()
    job.fleet[1].power_off()
    job.fleet[1].power_on()
    eventually(lambda: job.all_run(2))
    (job.checkpoints / "hold").unlink()
    eventually(lambda: [started_again(job, node) for node in (0, 1)] == [1, 1])
    job.fleet[0].stop_engine()
    job.fleet[0].start_engine()
    job.fleet[0].wait_for_engine()
    time.sleep(TIMEOUT)
    reports = [job.report(0, "h1"), job.report(1, "h2")]
    assert [(report["state"], report["generation"]) for report in reports] == [("succeeded", 2)] * 2
    assert [started_again(job, node) for node in (0, 1)] == [0, 1]  # engines count from their own start
    assert job.ends_well()["generation"] == 2


def without_spare(job: WithEtcd) -> None:
    """Take the spare out of the hosts file."""
    hosts = job.code / "hosts.txt"
    hosts.write_text(hosts.read_text().rpartition("\n")[0])


def started_again(job: WithEtcd, node: int) -> int | None:
    """How often an engine has started a node's container again since it ended, None while it does not run."""
    told = job.fleet[node].docker(
        "inspect", "--format", "{{.RestartCount}} {{.State.Running}}", f"jobctl-counter-{node}"
    )
    count, running = told.split()
    return int(count) if running == "true" else None


@pytest.mark.release(
    "tests/launcher/etcd/test_etcd.py::test_a_member_may_die_and_a_lost_quorum_ends_nothing",
    "tests/local/test_etcd.py::test_a_member_that_dies_is_started_again",
)
def test_a_member_is_killed_and_a_lost_quorum_ends_nothing(run: Callable[..., WithEtcd]) -> None:
    # Long enough for a leader to be elected, and for asking each member: below that it ends the processes to be safe.
    job = run(change=(f"host_timeout: {TIMEOUT}s", "host_timeout: 20s"))
    job.begin()
    os.kill(init_of(job.fleet[2], "jobctl-counter-etcd-0"), signal.SIGKILL)
    time.sleep(TIMEOUT + 1)
    eventually(lambda: job.phase() == "running")
    assert job.status()["generation"] == 1
    os.kill(job.supervisor_pid(), signal.SIGKILL)  # it would start them again
    members = [(job.fleet[2], "jobctl-counter-etcd-0"), (job.fleet[0], "jobctl-counter-etcd-1")]
    for host, name in members:
        host.docker("stop", name)
    time.sleep(28)
    assert job.all_run(1)
    supervisor = job.start("supervise")
    eventually(lambda: [node["state"] for node in job.status()["nodes"]] == ["running"] * 5)
    assert job.ends_well()["generation"] == 1
    assert supervisor.wait(120) == 0


def test_the_only_node_of_a_job_moves(run: Callable[..., WithEtcd]) -> None:
    """Nobody else could say that it is dead; the new launcher waits for its lease."""
    job = run(change=("nodes: 2", "nodes: 1"))
    (job.checkpoints / "hold").touch()
    up = job.up()
    assert up.returncode == 0, up.stderr
    path = job.checkpoints / "checkpoint-0"
    eventually(path.exists)
    home = job.status()["nodes"][0]["host"]
    job.fleet[0].power_off()
    eventually(lambda: job.order()["members"][0]["host"] == "h4" and job.all_train())
    node = eventually(lambda: (found := job.status()["nodes"][0])["state"] == "running" and found)
    assert node["host"] == "h4"
    assert home == "h1"
    (job.checkpoints / "hold").unlink()
    done = job.run("wait", "--timeout", "300s")
    assert done.returncode == 0, job.run("events").stdout
    assert not (job.checkpoints / "TWICE").exists()
    job.fleet[0].power_on()


def test_the_only_node_of_a_job_moves_to_a_hot_spare_with_nobody_watching(run: Callable[..., WithEtcd]) -> None:
    """Its lease in etcd is over, so the idle launcher of the spare may begin it."""
    job = run(change=("nodes: 2", "nodes: 1"))
    (job.checkpoints / "hold").touch()
    eventually(lambda: begins_with_a_spare(job))
    eventually((job.checkpoints / "checkpoint-0").exists)
    job.fleet[0].power_off()
    eventually(lambda: job.order()["members"][0]["host"] == "h4" and job.all_train())
    state = job.status()
    assert (state["supervised"], state["nodes"][0]["host"], state["generation"]) == (False, "h4", 2)
    assert [event["by"] for event in job.events() if event["event"] == "generation"][-1] == "etcd"
    assert job.fleet[3].containers() == ["jobctl-counter-spare"]
    job.fleet[0].power_on()
    (job.checkpoints / "hold").unlink()
    done = job.run("wait", "--timeout", "300s")
    assert done.returncode == 0, job.run("events").stdout
    assert not (job.checkpoints / "TWICE").exists()


@pytest.mark.release(
    "tests/fleet/recovery/test_etcd.py::test_the_only_node_of_a_job_moves",
    "tests/launcher/etcd/test_etcd.py::test_a_host_that_is_cut_off_from_etcd_ends_its_processes",
)
def test_a_host_is_cut_off_and_its_node_moves(run: Callable[..., WithEtcd]) -> None:
    job = run()
    job.begin()
    job.fleet[1].pull_cable()
    eventually(lambda: job.happened("moved"))
    eventually(job.all_train)
    eventually(lambda: job.report(1, "h2")["state"] == "fenced")
    assert job.status()["nodes"][1]["state"] == "running"
    job.fleet[1].plug_cable()
    job.tells("remove node 1 on h2: it runs on h4")
    state = job.ends_well()
    assert (state["nodes"][1]["host"], job.resumed()[-1] >= 2 * EVERY) == ("h4", True)


def test_a_controller_that_is_cut_off_changes_nothing(run: Callable[..., WithEtcd]) -> None:
    """Of a host that only it cannot reach, it starts nothing elsewhere: etcd says that the node's lease is held."""
    job = run()
    job.begin()
    block = ("ip", "route", "replace", "blackhole", f"{job.fleet[1].address}/32")
    subprocess.run(block, check=True)
    try:
        job.tells("h2 is not heard")
        time.sleep(TIMEOUT + 6)
        assert (job.report(1, "h2")["state"], job.report(1, "h2")["generation"]) == ("running", 1)
    finally:
        subprocess.run(["ip", "route", "del", "blackhole", f"{job.fleet[1].address}/32"], check=True)
    assert job.ends_well()["generation"] == 1
