"""The standby of an idle launcher: a node that moves to its host, or joins, begins in it; with a stand-in for the framework."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.node.idle import IdleLauncher
from tests.launcher.conftest import Node, lose_power
from tests.tools.processes import hurry
from tests.tools.waiting import eventually, promptly

from .stand_in import BOTH, RUN, waiting

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
    """Wait until it is known how its standby is: that it begins takes no time."""
    promptly(lambda: waiting(spare) or spare.report().get("standby", {}).get("state") == "off")
    eventually(lambda: hurry(spare.living()) or spare.report()["standby"]["state"] in ("ready", "off"))


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
    promptly(lambda: spare.report().get("standby") == {"state": "warming", "reason": None})
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
    # By then it says so.
    promptly(lambda: hurry(spare.living()) or waiting(spare).get("rank", before["rank"]) != before["rank"])
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


@pytest.mark.parametrize(("paused", "dropped"), [(True, []), (False, ["standby"])])
def test_what_waits_on_a_spare_waits_on_during_a_change(*, paused: bool, dropped: list[str]) -> None:
    """The next generation is to follow at once."""
    found: list[str] = []
    idle: Any = SimpleNamespace(
        orders=SimpleNamespace(order=SimpleNamespace(command="stop", is_paused=paused)),
        standby=SimpleNamespace(drop=lambda: found.append("standby")),
        links=SimpleNamespace(greet=lambda order: None),
        given_node=lambda: None,
    )
    assert (IdleLauncher.obey(idle), found) == (None, dropped)


def test_with_setup_nothing_is_imported_before_that(spare: Any) -> None:
    spare.launch["setup"] = ["true"]
    why = "`setup` comes before all imports, and begins once a node is here"
    assert waits(spare) == {"state": "off", "reason": why}
    assert moves(spare)["start"] == {"standby": False, "cold_because": f"standby is off: {why}"}


# A node that is to join: no generation was ever with it, and the one that runs has node 3 alone.


def joins(node: Node) -> dict[str, Any]:
    """Begin its launcher beside a generation without it, and return how its standby is once that is known."""
    node.start()
    order(node, 1, host="b")
    settled(node)
    found: dict[str, Any] = node.report()["standby"]
    return found


@BOTH
def test_a_node_that_joins_a_job_has_imported_by_then(standby: Any) -> None:
    assert joins(standby) == READY
    assert (standby.report()["state"], standby.report()["generation"]) == ("waiting", 0)
    standby.order(2)
    start = promptly(lambda: standby.report().get("start"))
    assert start == {"standby": True, "cold_because": None}
    promptly(lambda: "training framework 2\n" in standby.log("workerlog.1", 2))
    assert standby.log("workerlog.1", 2) == "framework imported in generation 1\ntraining framework 2\n"
    eventually(lambda: hurry(standby.living()) or standby.report()["standby"] == READY)  # for the next generation


def test_a_node_whose_host_comes_back_gets_ready_again_beside_a_job_that_goes_on_without_it(standby: Any) -> None:
    """Its launcher was started again, and knows from its report that the node was in an earlier generation."""
    standby.start()
    standby.order(1)
    standby.until("running", 1)
    lose_power(standby)
    standby.started[-1].wait()
    standby.start()
    order(standby, 2, host="b")
    settled(standby)
    assert standby.report()["standby"] == READY
    standby.order(3)
    assert promptly(lambda: standby.report().get("start")) == {"standby": True, "cold_because": None}


def test_a_node_that_joins_too_early_starts_cold_and_says_what_comes_next(standby: Any) -> None:
    hold = standby.root / "site-packages" / "framework" / "hold"
    hold.touch()
    standby.start()
    order(standby, 1, host="b")
    promptly(lambda: waiting(standby))
    standby.order(2)
    standby.until("running", 2)
    standby.looks()  # another one would begin then; the first step is yet to come
    assert standby.report()["standby"] == {"state": "warming", "reason": "it is begun after the first step"}
    promptly(lambda: waiting(standby) == {})  # the one that was not ready was killed: it ends when it gets a core
    hold.unlink()
    start = promptly(lambda: standby.report()["start"])
    assert start == {"standby": False, "cold_because": "standby was not ready"}


@pytest.mark.parametrize("command", ["stop", "finish"])
def test_nothing_waits_for_a_node_that_was_to_join_a_job_that_is_over(standby: Any, command: str) -> None:
    assert joins(standby) == READY
    order(standby, 1, host="b", command=command)
    promptly(lambda: waiting(standby) == {})


@pytest.mark.parametrize("why", ["left-out", "elsewhere", "setup", "alone"])
def test_no_other_node_without_a_generation_imports(standby: Any, why: str) -> None:
    """One that was left out may never be in again, and a node that is elsewhere does not join."""
    if why == "left-out":
        standby.start()
        standby.order(1)
        standby.until("running", 1)
        order(standby, 2, host="b")
    elif why == "elsewhere":
        standby.start()
        standby.order(1, members=[{**ELSEWHERE, "nproc": standby.launch["nproc"]}])
    elif why == "setup":
        standby.launch["setup"] = ["true"]
        assert joins(standby)["state"] == "off"
    else:
        standby.start(rejoin=3)
        order(standby, 1, host="b")
    promptly(lambda: standby.report().get("reason") == "not part of this generation")
    standby.looks()  # it would have begun by then
    assert waiting(standby) == {}


ELSEWHERE = {"node": 0, "rank": 0, "roles": ["trainer"], "host": "b", "address": "127.0.0.1"}
