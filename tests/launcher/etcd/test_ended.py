"""Launchers with etcd that their engines start again once there is nothing to do any more, with nobody watching."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.conftest import PATIENCE, lose_power
from tests.tools.etcd import b64, etcd
from tests.tools.waiting import promptly

from .nodes import PREFIX, EtcdNode, end

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("nothing_outlives_a_test")]  # an etcd

KEY, OVER, GENERATION = f"{PREFIX}/nodes/0", f"{PREFIX}/over", f"{PREFIX}/generation"
MEMBER = {"node": 0, "rank": 0, "roles": ["trainer"], "host": "a", "address": "127.0.0.1", "nproc": 1}
BOTH = [MEMBER, {**MEMBER, "node": 1, "rank": 1, "host": "b"}]


def again(node: EtcdNode, **launch: Any) -> dict[str, Any]:
    """Start the launcher again, as an engine does, and return its report once it has looked at etcd a few times."""
    pid = node.start(**launch).pid
    promptly(lambda: node.report()["launcher"]["pid"] == pid)
    until = time.monotonic() + 4.0
    while time.monotonic() < until:
        time.sleep(0.2)
        assert node.pids("script-") == []
        assert node.started[-1].poll() is None  # its engine would start it again, and again
    return node.report()


def crash(node: EtcdNode) -> None:
    """Have the container end as it does when its host loses power."""
    lose_power(node)
    node.started[-1].wait()


def put(node: EtcdNode, key: str, value: str) -> None:
    node.cluster.call("/v3/kv/put", key=b64(key), value=b64(value))


def over(node: EtcdNode) -> str | None:
    """The generation in which all nodes have ended well, as etcd has it."""
    found: str | None = node.cluster.keys(OVER).get(OVER, {}).get("generation")
    return found


def test_a_job_that_has_ended_well_stays_ended(node: EtcdNode) -> None:
    """Each launcher ends once; its engine starts it again, once more after each power cut."""
    node.begin()
    process = node.start()
    node.until("running", 1)
    (node.root / "end").touch()
    assert process.wait(PATIENCE) == 0
    assert over(node) == "demo-1"
    done = node.report()
    for _ in range(2):
        found = again(node)
        assert {name: found[name] for name in ("state", "generation", "finished_at")} == {
            name: done[name] for name in ("state", "generation", "finished_at")
        }
        promptly(lambda: node.cluster.keys(f"{PREFIX}/nodes/") == {})
        crash(node)
    (node.root / "end").unlink()
    node.begin(2)  # of the next `up`
    node.start()
    node.until("running", 2)


def test_a_node_that_has_ended_well_holds_its_lease_until_all_have(node: EtcdNode) -> None:
    node.begin(members=BOTH)
    node.start()
    node.until("running", 1)
    (node.root / "end").touch()
    node.until("succeeded", 1)
    crash(node)
    assert again(node)["state"] == "succeeded"
    assert promptly(lambda: node.cluster.keys(KEY)[KEY]["course"])["done"]
    other = {"generation": "demo-1", "failed": None, "headway": [9, 1.0], "done": True}
    put(node, f"{PREFIX}/nodes/1", json.dumps({"node": 1, "host": "b", "course": other}))
    promptly(lambda: node.cluster.keys(KEY) == {})
    assert (over(node), node.started[-1].poll()) == ("demo-1", None)
    node.cluster.call("/v3/kv/deleterange", key=b64(f"{PREFIX}/nodes/1"))


def test_a_job_that_launchers_have_ended_stays_ended(node: EtcdNode) -> None:
    node.begin(restarts=0)
    node.start()
    node.until("running", 1)
    node.kill()
    promptly(lambda: (r := node.report())["order"] and r["order"]["command"] == "stop")
    crash(node)
    found = again(node)
    assert (found["state"], found["failure"]["exit_code"], found["order"]["command"]) == ("failed", 137, "stop")
    promptly(lambda: node.cluster.keys(f"{PREFIX}/nodes/") == {})


@pytest.mark.parametrize("has", ["run", "finish", "nothing"])
def test_a_job_that_was_taken_down_elsewhere_stays_down(node: EtcdNode, has: str) -> None:
    """Its host was off meanwhile. Or it had the end, and was cut off from etcd then: that hears of it late."""
    node.begin()
    node.start()
    node.until("running", 1)
    order = node.generation()
    crash(node)
    node.cluster.call("/v3/kv/deleterange", key=b64(f"{PREFIX}/"), range_end=b64(f"{PREFIX}0"))
    if has == "run":
        put(node, GENERATION, json.dumps(order))
        node.begin(command="finish", grace=0.0)
    elif has == "finish":
        put(node, GENERATION, json.dumps({**order, "command": "finish"}))
    again(node)
    there = {} if has == "nothing" else {GENERATION: "finish"}
    promptly(lambda: {key: value.get("command") for key, value in node.cluster.keys(f"{PREFIX}/").items()} == there)
    node.until("failed" if has == "nothing" else "waiting")  # a supervisor may begin again
    node.begin(2, began=2.0)  # of the next `up`
    node.until("running", 2)


def test_a_node_that_has_moved_starts_nothing_where_it_was(node: EtcdNode) -> None:
    node.begin()
    node.start()
    node.until("running", 1)
    order = node.generation()
    crash(node)
    order["members"][0]["host"] = "b"
    put(node, GENERATION, json.dumps({**order, "number": 2, "rendezvous": {**order["rendezvous"], "id": "demo-2"}}))
    again(node)
    promptly(lambda: node.report()["reason"] == "not part of this generation")
    promptly(lambda: node.cluster.keys(f"{PREFIX}/nodes/") == {})
    assert (node.report()["state"], node.report()["failure"]) == ("waiting", None)


def test_a_launcher_that_is_started_again_does_nothing_before_etcd_answers(tmp_path: Path, python: str) -> None:
    with etcd(tmp_path / "etcd") as cluster:
        node = EtcdNode(tmp_path, python, cluster)
        with node.supervisor:
            node.begin()
            node.start()
            node.until("running", 1)
            crash(node)
            cluster.kill(0)
            found = again(node)
            assert (found["state"], found["generation"], found["failure"]) == ("waiting", 1, None)
            promptly(lambda: "etcd does not answer" in (node.report()["reason"] or ""))
            cluster.start(0)
            node.until("running", 2)
            end(node)


def test_a_host_that_is_shut_down_in_order_comes_back(node: EtcdNode) -> None:
    """Its engine sends SIGTERM to all containers, and starts them again as it boots."""
    node.begin()
    process = node.start()
    node.until("running", 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    node.start()
    report = node.until("running", 2)
    assert report["order"]["autonomy"]["failures"][0]["kind"] == "launcher"


def test_one_that_regroups_joins_the_others_again_until_it_has_ended_well(node: EtcdNode) -> None:
    """As launchers of Paddle do: jobctl's ends with a failure, so that its engine starts it again."""
    node.begin()
    process = node.start(regroups=True, rejoin=3)
    node.until("running", 1)
    node.kill()
    assert process.wait(PATIENCE) == 137
    process = node.start()
    node.until("running", 1)
    (node.root / "end").touch()
    assert process.wait(PATIENCE) == 0
    assert again(node)["state"] == "succeeded"
    promptly(lambda: over(node) == "demo-1" and node.cluster.keys(KEY) == {})
