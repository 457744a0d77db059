"""Launchers with a real etcd: its leases alone say who may run a node, and a failed node goes on without a supervisor."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.lease import TICK
from tests.launcher.conftest import PATIENCE, STALL, lose_power
from tests.tools.etcd import PASSWORD, USER, Etcd, b64, etcd
from tests.tools.waiting import promptly

from .nodes import PREFIX, EtcdNode, end

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("nothing_outlives_a_test")]
# An etcd; jobs that lose its members: supervise/worlds/test_etcd.py

SHORT = STALL + 2.0  # for tests that wait until it is over


def test_a_generation_begins_once_etcd_has_it(node: EtcdNode) -> None:
    node.begin()
    node.start()
    node.until("running", 1)
    keys = node.cluster.keys(f"{PREFIX}/")
    assert sorted(keys) == [f"{PREFIX}/generation", f"{PREFIX}/nodes/0"]
    orders = (keys[f"{PREFIX}/generation"], json.loads(node.control.read_text()))
    assert Order.from_json(orders[0]) == Order.from_json(orders[1])
    assert (keys[f"{PREFIX}/nodes/0"]["node"], keys[f"{PREFIX}/nodes/0"]["host"]) == (0, "a")


def test_a_failed_process_begins_the_next_generation(node: EtcdNode) -> None:
    node.begin()
    node.start()
    node.until("running", 1)
    node.kill()
    report = node.until("running", 2)
    order = node.generation()
    assert (order["number"], Order.from_json(order).members, order["began"]) == (
        2,
        Order.from_json(json.loads(node.control.read_text())).members,
        1.0,
    )
    failure = order["autonomy"]["failures"][0]
    assert (failure["generation"], failure["node"], failure["rank"], failure["kind"], failure["exit_code"]) == (
        1,
        0,
        0,
        "signal",
        137,
    )
    assert report["order"] == order
    # The first after 29999, the last, at which nobody listens.
    assert order["rendezvous"]["port"] in range(20000, 20020)


@pytest.mark.long
def test_restarts_are_counted(node: EtcdNode) -> None:
    node.begin(restarts=1)
    node.start()
    node.until("running", 1)
    node.kill()
    node.until("running", 2)
    node.kill()
    node.until("failed", 2)
    node.says("the job ends: the restarts of `recovery.max_restarts` are used up")
    promptly(lambda: node.generation()["command"] == "stop")
    order = node.generation()
    why = "node 0: rank 0 was killed by SIGKILL; the restarts of `recovery.max_restarts` are used up"
    assert (order["number"], order["why"], len(order["autonomy"]["failures"])) == (2, why, 2)
    assert promptly(lambda: (r := node.report())["order"] == order and r)["state"] == "failed"
    node.begin(3)  # of the next `up`
    node.until("running", 3)


def test_what_is_not_plain_waits_for_the_supervisor(node: EtcdNode) -> None:
    """What is plain: test_alone.py."""
    command = node.script("import sys; print('no such luck', flush=True); sys.exit(3)")
    rules = [{"log": "no such luck", "exit": None, "do": "exclude_host"}]
    node.begin(autonomy={"restarts": 9, "rules": rules, "ports": [20000, 29999], "failures": []})
    node.start(command=command)
    node.says("a rule has it leave its host; waits for the supervisor")
    assert (node.report()["state"], node.generation()["number"]) == ("failed", 1)


def test_a_supervisor_is_left_to_it(node: EtcdNode) -> None:
    node.supervisor.answering = True
    node.begin()
    node.start()
    node.until("running", 1)
    promptly(lambda: any(line["echo"] for line in node.supervisor.lines))
    node.kill()
    node.says("leaves it to the supervisor")
    assert (node.report()["state"], node.generation()["number"]) == ("failed", 1)
    node.supervisor.silence()
    node.until("running", 2)


def test_a_launcher_that_was_killed_comes_back_by_itself(node: EtcdNode) -> None:
    """Its lease is not waited for: the one that starts again on this host knows that the other is dead."""
    node.begin(host_timeout=2 * PATIENCE)
    first = node.start()
    node.until("running", 1)
    first.kill()
    first.wait()
    node.gone()
    node.start()
    report = node.until("running", 2, PATIENCE)
    assert report["order"]["autonomy"]["failures"][0]["kind"] == "launcher"


@pytest.mark.long
def test_another_host_waits_until_the_lease_is_over(node: EtcdNode, tmp_path: Path, python: str) -> None:
    node.begin()
    first = node.start()
    node.until("running", 1)
    lease = json.loads((node.dir / "lease").read_text())["lease"]
    other = EtcdNode(tmp_path / "other", python, node.cluster, "b")
    other.dir.parent.mkdir(exist_ok=True)
    other.begin(2)
    other.start()
    promptly(lambda: "launcher on a" in (other.report().get("reason") or ""))
    assert node.generation()["number"] == 1  # nor does it tell others of a generation that it cannot begin
    assert node.report()["state"] == "running"
    lose_power(node)
    first.wait()
    left = int(node.cluster.call("/v3/lease/timetolive", ID=lease)["TTL"])
    assert (left > 0, other.report()["state"]) == (True, "waiting")
    node.cluster.call("/v3/lease/revoke", ID=lease)  # as etcd does when it is over
    other.until("running", 2)
    end(other)


def test_a_node_that_moved_ends_where_it_was(node: EtcdNode) -> None:
    """It hears of that by etcd, whoever can reach its host."""
    node.begin()
    node.start()
    node.until("running", 1)
    order = {**json.loads(node.control.read_text()), "number": 2}
    order["members"][0]["host"] = "b"
    order["rendezvous"]["id"] = "demo-2"
    node.cluster.call("/v3/kv/put", key=b64(f"{PREFIX}/generation"), value=b64(json.dumps(order)))
    promptly(lambda: node.report()["reason"] == "not part of this generation")
    assert node.pids("script") == []


def test_a_node_that_has_ended_well_begins_again_with_one_that_has_failed(node: EtcdNode) -> None:
    """It stays until the other one has ended well, too; nobody watches."""
    one = {"rank": 0, "roles": ["trainer"], "host": "a", "address": "127.0.0.1", "nproc": 1}
    both = [{**one, "node": 0}, {**one, "node": 1, "rank": 1, "host": "b"}]
    node.begin(members=both)
    process = node.start()
    node.until("running", 1)
    (node.root / "end").touch()
    node.until("succeeded", 1)
    key = f"{PREFIX}/nodes/0"
    promptly(lambda: (node.cluster.keys(key)[key].get("course") or {}).get("done"))
    (node.root / "end").unlink()
    order = {**node.generation(), "number": 2}
    order["rendezvous"] = {**order["rendezvous"], "id": "of-node-1"}
    node.cluster.call("/v3/kv/put", key=b64(f"{PREFIX}/generation"), value=b64(json.dumps(order)))
    node.until("running", 2)
    (node.root / "end").touch()
    promptly(lambda: node.cluster.keys(key)[key]["course"]["generation"] == "of-node-1")
    other = {
        "node": 1,
        "host": "b",
        "course": {"generation": "of-node-1", "failed": None, "headway": [9, 1.0], "done": True},
    }
    node.cluster.call("/v3/kv/put", key=b64(f"{PREFIX}/nodes/1"), value=b64(json.dumps(other)))
    assert process.wait(PATIENCE) == 0
    node.cluster.call("/v3/kv/deleterange", key=b64(f"{PREFIX}/nodes/1"))


def test_finish_takes_everything_along(node: EtcdNode) -> None:
    node.begin()
    process = node.start()
    node.until("running", 1)
    node.begin(command="finish", grace=0.0)
    assert process.wait(PATIENCE) == 0
    assert node.cluster.keys(f"{PREFIX}/") == {}


def test_a_job_that_was_taken_down_leaves_nothing_that_matters(node: EtcdNode) -> None:
    """Numbers begin anew: an older job's generation in etcd counts for nothing."""
    node.begin(7)
    first = node.start()
    node.until("running", 7)
    lose_power(node)
    first.wait()
    (node.dir / "report.json").unlink()
    node.begin(1, began=2.0)
    node.start()
    node.until("running", 1)
    assert node.generation()["number"] == 1


def test_no_etcd_is_said_and_waited_for(tmp_path: Path, python: str) -> None:
    with etcd(tmp_path / "etcd") as cluster:
        cluster.kill(0)
        node = EtcdNode(tmp_path, python, cluster)
        with node.supervisor:
            node.begin()
            node.start()
            where = cluster.endpoints[0]
            promptly(lambda: f"{where}: [Errno 111] Connection refused" in (node.report().get("reason") or ""))
            cluster.start(0)
            node.until("running", 1)
            end(node)


@pytest.mark.every_python
def test_tls_users_and_a_password(tmp_path: Path, python: str) -> None:
    with etcd(tmp_path / "etcd", tls=True, users=True) as cluster:
        node = EtcdNode(tmp_path, python, cluster)
        node.launch["etcd"] |= {"user": USER, "password": "ETCD_PASSWORD"}
        secrets = tmp_path / "secrets.json"
        secrets.write_text(json.dumps({"ETCD_PASSWORD": PASSWORD}))
        with node.supervisor:
            node.begin()
            node.start("--secrets", str(secrets), secrets=["ETCD_PASSWORD"])
            node.until("running", 1)
            node.kill()
            node.until("running", 2)
            assert PASSWORD not in (node.dir / "report.json").read_text()
            node.begin(3, command="finish", grace=0.0)
            node.until("stopped", 2)
            end(node)
            assert cluster.keys("/jobctl/") == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tls": {"ca": "/nowhere/ca.pem"}}, "No such file or directory: '/nowhere/ca.pem'"),
        ({"tls": {}}, "certificate"),
        ({"user": USER, "password": None}, "authentication"),
    ],
    ids=["file", "certificate", "user"],
)
def test_what_etcd_refuses_is_said(tmp_path: Path, python: str, change: dict[str, Any], says: str) -> None:
    with etcd(tmp_path / "etcd", tls=True, users=True) as cluster:
        node = EtcdNode(tmp_path, python, cluster)
        node.launch["etcd"] |= change
        with node.supervisor:
            node.begin()
            node.start()
            promptly(lambda: says in (node.report().get("reason") or ""))
            end(node)


def kept_alive(cluster: Etcd) -> None:
    """Wait until the lease, of which there is one, was renewed."""
    before = cluster.renewals()
    promptly(lambda: cluster.renewals() > before)


@pytest.mark.long
def test_a_member_may_die_and_a_lost_quorum_ends_nothing(tmp_path: Path, python: str) -> None:
    """Also where a member comes later: until it has run, etcd does not say where it is called.

    A launcher that knows too few of the members to tell that from a cut is fenced meanwhile, though its lease is longer.
    """
    with etcd(tmp_path / "etcd", 3, late=1) as cluster:
        node, other = EtcdNode(tmp_path / "a", python, cluster), EtcdNode(tmp_path / "b", python, cluster)
        other.launch["etcd"] |= {"endpoints": cluster.endpoints[2:], "prefix": f"{PREFIX}-other"}
        with node.supervisor, other.supervisor:
            node.begin(host_timeout=SHORT)
            node.start()
            node.until("running", 1)
            pid = node.pid()
            cluster.start(2)
            promptly(lambda: all("clientURLs" in m for m in cluster.call("/v3/cluster/member/list")["members"]))
            for _ in range(2):
                kept_alive(cluster)  # in each round the launcher asks who the members are, while one has not run
            cluster.kill(0)
            for _ in range(2):
                kept_alive(cluster)
            other.begin(host_timeout=SHORT + 2 * TICK)
            other.start()
            other.until("running", 1)
            cluster.kill(1)
            other.until("fenced", 1)
            assert (node.report()["state"], node.report()["processes"][0]["pid"]) == ("running", pid)
            node.kill()  # nothing can be decided now
            node.until("failed", 1)
            node.looks()
            assert node.report()["state"] == "failed"
            cluster.start(1)
            node.until("running", 2)
            end(node, other)


@pytest.mark.long
def test_a_host_that_is_cut_off_from_etcd_ends_its_processes(tmp_path: Path, python: str) -> None:
    """It cannot tell that from a quorum that is lost: a member that does not answer at all says nothing."""
    with etcd(tmp_path / "etcd", 3) as cluster:
        node = EtcdNode(tmp_path, python, cluster)
        with node.supervisor:
            node.begin(host_timeout=SHORT)
            node.start()
            node.until("running", 1)
            began = time.time()
            for number in range(3):
                cluster.signal(number, signal.SIGSTOP)
            took = node.until("fenced", 1)["finished_at"] - began
            # It was kept alive every second; the session, or the launcher, may have stood still.
            assert SHORT - TICK - STALL < took < SHORT + TICK + STALL
            for number in range(3):
                cluster.signal(number, signal.SIGCONT)
            node.until("running", 2)
            end(node)


def test_a_lease_that_somebody_ends_ends_the_processes(node: EtcdNode) -> None:
    node.begin()
    node.start()
    node.until("running", 1)
    lease = json.loads((node.dir / "lease").read_text())["lease"]
    node.cluster.call("/v3/lease/revoke", ID=lease)
    report = node.until("running", 2)
    assert report["order"]["autonomy"]["failures"][0]["kind"] == "fenced"


def test_the_timeout_can_change(node: EtcdNode) -> None:
    """Its earlier lease is given back. Other tests may have left some that run out by themselves."""
    node.begin(host_timeout=300.0)
    node.start()
    node.until("running", 1)
    before = json.loads((node.dir / "lease").read_text())["lease"]
    node.begin(2, host_timeout=600.0)
    node.until("running", 2)
    lease = json.loads((node.dir / "lease").read_text())["lease"]
    assert node.cluster.call("/v3/lease/timetolive", ID=lease)["grantedTTL"] == "602"
    promptly(lambda: {"ID": before} not in node.cluster.call("/v3/lease/leases")["leases"])


@pytest.mark.long
def test_a_session_that_is_killed_takes_its_launcher_along(node: EtcdNode) -> None:
    node.begin(host_timeout=SHORT)
    process = node.start()
    node.until("running", 1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)  # the first that was started
    assert process.wait(PATIENCE) == 137
    node.gone()
