"""The standby of an idle launcher: whatever node moves to its host begins in it, with a stand-in for the framework."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.processes import hurry
from tests.tools.waiting import eventually, promptly

from .conftest import Node
from .test_standby import BOTH, RUN, standby, waiting

__all__ = ["standby"]  # the fixture

READY = {"state": "ready", "reason": None}


@pytest.fixture
def spare(standby: Any) -> Any:
    """An idle launcher on host b; node 3 of the job is on host a, where nothing is. The stand-in does not count steps."""
    standby.dir = standby.root / "spare"
    standby.launch.update(node=-1, host="b", spare=4)
    (standby.root / "node-3").mkdir()
    return standby


def order(spare: Node, number: int, *, host: str = "a", command: str = "run", **changes: Any) -> None:
    """Hand it an order that has node 3 on a host; ranks of other nodes come first."""
    member = {"node": 3, "rank": 6, "roles": ["trainer"], "host": host, "address": "127.0.0.1"}
    spare.order(number, command, members=[{**member, "nproc": spare.launch["nproc"]}], **changes)


def settled(spare: Node) -> None:
    """Wait until it is known how its standby is."""
    eventually(lambda: hurry(spare.living()) or spare.report().get("standby", {}).get("state") in ("ready", "off"))


def waits(spare: Node) -> dict[str, Any]:
    """Begin it, and return how its standby is once that is known."""
    spare.start()
    order(spare, 1)
    settled(spare)
    found: dict[str, Any] = spare.report()["standby"]
    return found


def moves(spare: Node) -> dict[str, Any]:
    """Give node 3 to it, and return the report of that node once it is known how its generation was started."""
    order(spare, 2, host="b")
    spare.dir = spare.root / "node-3"
    found: dict[str, Any] = promptly(lambda: (r := spare.report()).get("start") and r)
    return found


@BOTH
def test_a_node_that_moves_to_a_spare_does_not_import(spare: Any) -> None:
    assert waits(spare) == READY
    said = moves(spare)
    assert (said["node"], said["start"]) == (3, {"standby": True, "cold_because": None})
    promptly(lambda: "training framework 2\n" in spare.log("workerlog.1", 2))
    assert spare.log("workerlog.1", 2) == "framework imported in generation 1\ntraining framework 2\n"
    eventually(lambda: hurry(spare.living()) or spare.report()["standby"] == READY)  # for the next generation


@BOTH
def test_a_rank_on_a_spare_has_the_variables_of_its_node(spare: Any) -> None:
    script = "import framework, os; print(*(os.environ[name] for name in ('JOBCTL_NODE', 'LOCAL_RANK', 'MASTER_PORT')))"
    (spare.root / "train.py").write_text(script + "\nimport time; time.sleep(600)\n")
    assert waits(spare) == READY
    assert moves(spare)["start"] == {"standby": True, "cold_because": None}
    port = "2" if spare.launch["start"] else "29999"
    assert promptly(lambda: spare.log("workerlog.1", 2).endswith(f"3 1 {port}\n"))


@BOTH
def test_a_variable_of_the_node_that_an_import_has_read_makes_the_start_cold(spare: Any) -> None:
    later = spare.root / "site-packages" / "later.py"
    later.write_text("import os\nnode = os.environ.get('JOBCTL_NODE')\n")
    assert waits(spare) == READY
    why = "the variable JOBCTL_NODE, which an import has read, has changed"
    assert moves(spare)["start"] == {"standby": False, "cold_because": why}


@BOTH
def test_a_node_that_comes_too_early_starts_cold(spare: Any) -> None:
    hold = spare.root / "site-packages" / "framework" / "hold"
    hold.touch()
    spare.start()
    order(spare, 1)
    promptly(lambda: waiting(spare))
    assert spare.report()["standby"] == {"state": "warming", "reason": None}
    order(spare, 2, host="b")
    spare.dir = spare.root / "node-3"
    spare.until("running", 2)
    hold.unlink()
    start = promptly(lambda: spare.report()["start"])
    assert start == {"standby": False, "cold_because": "standby was not ready"}


@pytest.mark.parametrize(
    ("main", "why"),
    [
        ("raise ValueError('no')", "the framework's launcher fails when it is tried: ValueError"),
        ("return 0", "the framework's launcher ends when it is tried"),
        (
            "return subprocess.call(['numactl', *argv[1:]])",
            "the framework's launcher starts processes in a way of its own",
        ),
    ],
    ids=["fails", "ends", "own-way"],
)
def test_a_launcher_that_cannot_be_tried_means_a_cold_start(spare: Any, main: str, why: str) -> None:
    run = spare.root / "site-packages" / "framework" / "run.py"
    run.write_text(
        RUN.replace(
            "    count, shim", f"    if 'rehearsal' in os.environ.get('JOBCTL_MODE', ''): {main}\n    count, shim"
        )
    )
    spare.launch["env"] += [["JOBCTL_MODE", {"slot": "rdzv_id"}]]
    assert waits(spare) == {"state": "off", "reason": why}
    assert moves(spare)["start"] == {"standby": False, "cold_because": f"standby is off: {why}"}


def test_it_is_made_again_where_a_generation_changes_what_a_node_begins_with(spare: Any) -> None:
    spare.launch["env"] += [["RUN", {"slot": "run_id"}]]
    assert waits(spare) == READY
    before = waiting(spare)
    order(spare, 2, run_id="demo-2")
    eventually(lambda: waiting(spare).get("rank", before["rank"]) != before["rank"])  # by then it says so
    eventually(lambda: hurry(spare.living()) or spare.report()["standby"] == READY)
    order(spare, 3, host="b", run_id="demo-2")
    spare.dir = spare.root / "node-3"
    assert promptly(lambda: spare.report().get("start")) == {"standby": True, "cold_because": None}


@BOTH
@pytest.mark.parametrize("command", ["stop", "finish"])
def test_nothing_waits_on_a_spare_of_a_job_that_is_over(spare: Any, command: str) -> None:
    assert waits(spare) == READY
    assert waiting(spare)
    order(spare, 1, command=command)
    promptly(lambda: waiting(spare) == {})


def test_with_setup_nothing_is_imported_before_that(spare: Any) -> None:
    spare.launch["setup"] = ["true"]
    why = "`setup` comes before all imports, and begins once a node is here"
    assert waits(spare) == {"state": "off", "reason": why}
    assert moves(spare)["start"] == {"standby": False, "cold_because": f"standby is off: {why}"}
