"""Which generation an allocation begins with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.allocation.generation import Generations

TEMPLATE = {
    "version": 1,
    "job": "demo",
    "grace": 5.0,
    "members": [
        {"node": 0, "rank": 0, "roles": ["trainer"], "address": "node-0", "ports": []},
        {"node": 1, "rank": 1, "roles": ["trainer"], "address": "node-1", "ports": [29502]},
        {"node": 2, "rank": 2, "roles": ["server"], "address": "node-2", "ports": [29501]},
    ],
    "rendezvous": {"address": "node-0", "port": 29500},
    "autonomy": {"ports": [20000, 29999], "failures": []},
    "port_is_given": True,
}
NODES = (0, 1, 2)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "control.json").write_text(json.dumps(TEMPLATE))
    start(tmp_path)
    return tmp_path


def start(work: Path, *, fresh_budget: bool = False) -> None:
    (work / "run" / "start.json").write_text(json.dumps({"began": 7.0, "fresh_budget": fresh_budget}))


def report(work: Path, node: int, order: dict[str, Any]) -> None:
    """Write what the launcher of a node has left behind."""
    (work / f"node-{node}").mkdir()
    (work / f"node-{node}" / "report.json").write_text(json.dumps({"order": order}))


def test_the_first_generation_has_the_port_of_the_spec(work: Path) -> None:
    order = Generations(str(work), "1").begin(NODES)
    assert (order["number"], order["command"], order["began"], order["rendezvous"]["port"]) == (1, "run", 7.0, 29500)
    assert json.loads((work / "run" / "control.json").read_text()) == order


def test_an_allocation_goes_on_after_the_newest_generation_of_the_one_before(work: Path) -> None:
    first = Generations(str(work), "1").begin(NODES)
    failure, counted = {"node": 1, "kind": "exit"}, {"first": 1, "count": 7, "at": []}
    report(work, 0, {**first, "number": 2})
    terms = {**first["autonomy"], "failures": [failure], "earlier": counted}
    report(work, 1, {**first, "number": 3, "autonomy": terms})
    report(work, 2, {**first, "number": 9, "began": 6.0})  # of another time that the job was up
    report(work, 3, {"number": 9})  # not an order
    order = Generations(str(work), "2").begin(NODES)
    assert (order["number"], order["autonomy"]["failures"], order["autonomy"]["earlier"]) == (4, [failure], counted)


def test_each_generation_says_why_it_began(work: Path) -> None:
    assert Generations(str(work), "1").begin(NODES)["cause"] == "the job is new"
    generations = Generations(str(work), "2")
    generations.cause = "`jobctl restart`"  # of which the next one knows nothing
    assert [generations.begin(NODES)["cause"] for _ in range(2)] == [
        "`jobctl restart`",
        "it goes on in another allocation",
    ]
    start(work, fresh_budget=True)
    assert Generations(str(work), "3").begin(NODES)["cause"] == "the job was brought up again"


def test_launchers_of_an_earlier_version_know_autonomy_as_alone(work: Path) -> None:
    terms = {"ports": [20000, 29999], "failures": [{"node": 1, "kind": "exit"}]}
    before = {name: value for name, value in Generations(str(work), "1").begin(NODES).items() if name != "autonomy"}
    report(work, 0, {**before, "number": 2, "alone": terms})
    (work / "control.json").write_text(json.dumps({**TEMPLATE, "alone": TEMPLATE["autonomy"]}))
    order = Generations(str(work), "2").begin(NODES)
    terms["base"] = {"number": 3, "id": order["rendezvous"]["id"]}
    assert (order["number"], order["autonomy"], order["alone"]) == (3, terms, terms)


def test_up_of_a_failed_job_starts_the_count_of_failures_again(work: Path) -> None:
    first = Generations(str(work), "1").begin(NODES)
    report(work, 0, {**first, "autonomy": {**first["autonomy"], "failures": [{"node": 0}]}})
    start(work, fresh_budget=True)
    assert Generations(str(work), "2").begin(NODES)["autonomy"]["failures"] == []
    assert Generations(str(work), "3").start["fresh_budget"] is False


def test_the_members_of_a_smaller_generation_have_new_ranks_and_meet_at_the_first_of_them(work: Path) -> None:
    Generations(str(work), "1").begin(NODES)
    order = Generations(str(work), "1").begin([2, 1])
    assert order["rendezvous"]["address"] == "node-1"
    assert [(member["node"], member["rank"]) for member in order["members"]] == [(1, 0), (2, 1)]


def test_ports_of_trainers_are_apart_from_those_of_servers_on_the_same_machine(work: Path) -> None:
    generations = Generations(str(work), "1")
    for _ in range(2):
        order = generations.begin(NODES)
        assert [member["ports"] for member in order["members"]] == [
            [],
            [order["rendezvous"]["port"] + 502],
            [order["rendezvous"]["port"] + 1],
        ]
        report(work, order["number"], order)
    assert order["rendezvous"]["port"] != 29500


def test_the_last_step_is_the_furthest_that_a_node_has_told(work: Path) -> None:
    generations = Generations(str(work), "1")
    assert generations.step() == -1
    for node, progress in enumerate((None, 7, 5)):
        report(work, node, {})
        (work / f"node-{node}" / "report.json").write_text(json.dumps({"progress": progress}))
    assert generations.step() == 7


def test_a_fresh_run_has_the_first_directory_that_is_not_there_and_stays_there(work: Path) -> None:
    """As long as the job has the directory above it."""
    base = work / "checkpoints"
    (base / "fresh-1").mkdir(parents=True)
    template = {**TEMPLATE, "run_id": "demo-1", "checkpoint_dir": str(base)}
    (work / "control.json").write_text(json.dumps(template))
    generations = Generations(str(work), "1")
    first = generations.begin(NODES)
    assert (first["run_id"], first["checkpoint_dir"]) == ("demo-1", str(base))

    generations.note(fresh=True)
    fresh = generations.begin(NODES)
    assert (fresh["number"], fresh["checkpoint_dir"]) == (2, str(base / "fresh-2"))
    assert (base / "fresh-2").is_dir()
    assert fresh["run_id"] not in ("demo-1", None)

    later = Generations(str(work), "2").begin(NODES)
    assert (later["run_id"], later["checkpoint_dir"]) == (fresh["run_id"], fresh["checkpoint_dir"])

    (work / "control.json").write_text(json.dumps({**template, "checkpoint_dir": "/elsewhere"}))
    moved = Generations(str(work), "3").begin(NODES)
    assert (moved["run_id"], moved["checkpoint_dir"]) == (fresh["run_id"], "/elsewhere")


def test_a_fresh_run_without_checkpoints_has_a_name_of_its_own(work: Path) -> None:
    (work / "control.json").write_text(json.dumps({**TEMPLATE, "run_id": "demo-1", "checkpoint_dir": None}))
    generations = Generations(str(work), "1")
    generations.note(fresh=True)
    order = generations.begin(NODES)
    assert (order["checkpoint_dir"], order["run_id"] != "demo-1") == (None, True)
