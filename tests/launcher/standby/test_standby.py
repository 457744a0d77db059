"""A generation that begins from standby, with a stand-in for the framework: what a rank sees is what it sees after a cold start."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.standby.guard import CHANGING
from tests.launcher.conftest import PATIENCE, kill_together
from tests.tools.waiting import promptly

from .stand_in import ALL, BOTH, ITSELF, MEET, OWN, TRAIN, begin, begin_again, begun_again, waiting

SEEN = Path(__file__).with_name("seen.py")


@ALL
def test_a_rank_that_has_imported_before_does_not_import_again(standby: Any) -> None:
    begin(standby)
    assert standby.report()["start"] == {"standby": False, "cold_because": "it is the first start of this launcher"}
    report = begin_again(standby)
    assert report["start"] == {"standby": True, "cold_because": None}
    promptly(lambda: "training framework 2\n" in standby.log("workerlog.1", 2))  # words are written one by one
    assert standby.log("workerlog.1", 2) == "framework imported in generation 1\ntraining framework 2\n"


def test_the_frameworks_launcher_connects_once_that_of_the_first_node_listens(standby: Any) -> None:
    """torchrun that finds nobody there tries again half a second later, or a whole one. What only looks says nothing."""
    (standby.root / "site-packages" / "framework" / "meet.py").write_text(MEET)
    standby.launch["start"] = [
        standby.python,
        "-m",
        "framework.meet",
        {"slot": "master_port"},
        "2",
        {"slot": "process"},
    ]
    standby.launch["standby"]["launcher"] = "framework.meet"
    begin(standby)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        members = [
            {"node": node, "rank": 1 - node, "roles": ["trainer"], "host": "a", "address": "127.0.0.1", "nproc": 2}
            for node in (0, 1)
        ]
        rendezvous = {"address": "127.0.0.1", "port": server.getsockname()[1], "id": "demo-2"}
        assert begin_again(standby, members=members, rendezvous=rendezvous)["start"]["standby"]
        links = [server.accept()[0] for _ in range(2)]
        assert [link.recv(10) for link in links] == [b"", b"here\n"]
    for link in links:
        link.close()


@ITSELF
def test_a_process_begins_once_the_first_one_listens(standby: Any) -> None:
    """JAX that finds nobody there tries again a second later. The first process looks for nobody."""
    begin(standby)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        rendezvous = {"address": "127.0.0.1", "port": server.getsockname()[1], "id": "demo-2"}
        assert begin_again(standby, rendezvous=rendezvous)["start"]["standby"]
        with server.accept()[0] as link:
            assert link.recv(10) == b""
        promptly(lambda: all("training" in standby.log(f"workerlog.{local}", 2) for local in (0, 1)))
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def seen(node: Any, generation: int) -> dict[str, Any]:
    """Return what the probe has printed."""
    text: str = promptly(lambda: "}\n" in (log := node.log("workerlog.0", generation)) and log)
    found: dict[str, Any] = json.loads(text[text.index("{") : text.index("}\n") + 1])
    for variables in (found["variables"], found["variables of C"]):
        for name in CHANGING.union(OWN) & {*variables}:
            variables[name] = "another in each generation"
    return found


@BOTH
def test_what_waits_in_a_folder_that_was_replaced_is_not_used(standby: Any) -> None:
    """A user may have replaced the code as a whole: what waits would still be in the folder that was there before."""
    code = standby.root / "code"
    code.mkdir()
    (standby.root / "train.py").rename(code / "train.py")
    standby.launch["workdir"] = str(code)
    begin(standby)
    code.rename(standby.root / "before")
    code.mkdir()
    (code / "train.py").write_text("print('of now')\n" + TRAIN)
    why = {"standby": False, "cold_because": "the working directory has been replaced"}
    assert begin_again(standby)["start"] == why
    promptly(lambda: "of now" in standby.log("workerlog.1", 2))


@ALL
@pytest.mark.every_python
def test_a_rank_sees_from_standby_what_it_sees_after_a_cold_start(standby: Any) -> None:
    standby.launch["command"][2:] = [str(SEEN), "--rate", "0.1", ""]
    standby.launch["start"][3:4] = ["1"] if standby.launch["start"] else []
    standby.launch["nproc"] = 1
    standby.launch["env"] += [["PYTHONHASHSEED", "7"], ["PYTHONWARNINGS", "ignore::ImportWarning"], ["EMPTY", ""]]
    begin(standby)
    assert begin_again(standby)["start"] == {"standby": True, "cold_because": None}
    cold, warm = seen(standby, 1), seen(standby, 2)
    finders = warm.pop("finders before")
    assert finders == ["Preloaded", *cold.pop("finders before")]
    assert {name: (cold[name], warm[name]) for name in cold if cold[name] != warm[name]} == {}
    promptly(lambda: "at exit\n" in standby.log("workerlog.0", 2))
    words = standby.log("workerlog.0", 2).partition("Traceback")[2]
    assert words.startswith(f' (most recent call last):\n  File "{SEEN}", line ')
    assert words.count("  File ") == 1
    assert words.endswith("LookupError: the last words\nat exit\n")


@ITSELF
def test_a_process_that_is_started_again_alone_has_imported_before(standby: Any) -> None:
    standby.launch["rejoin"] = 3
    begin(standby)
    others = [process["pid"] for process in standby.report()["processes"]][:1]
    os.kill(standby.report()["processes"][1]["pid"], signal.SIGKILL)
    promptly(lambda: standby.log("workerlog.1", 1).count("training") == 2)
    assert standby.log("workerlog.1", 1).count("framework imported") == 1 + 1  # by the first, and by what waited
    assert [process["pid"] for process in standby.report()["processes"]][:1] == others
    promptly(lambda: standby.report()["process_restarts"] == 1)  # told a moment after it has begun
    assert standby.report()["start"] == {"standby": False, "cold_because": "it is the first start of this launcher"}


@pytest.mark.parametrize(
    ("standby", "victim"),
    [("torchrun", "launcher"), ("torchrun", "guard"), ("torchrun", "rank"), ("itself", "guard"), ("itself", "rank")],
    indirect=["standby"],
)
def test_whatever_of_it_is_killed_the_job_trains_on_and_starts_cold(standby: Any, victim: str) -> None:
    begin(standby)
    ranks = [process["pid"] for process in standby.report()["processes"]]
    before, hold = waiting(standby), standby.root / "site-packages" / "framework" / "hold"
    hold.touch()  # however slow this test is, what is begun in its place is not ready
    os.kill(before[victim], signal.SIGKILL)
    promptly(lambda: standby.report()["standby"]["state"] == "warming")
    promptly(lambda: not {*before.values()} & {*waiting(standby).values()})
    assert [process["pid"] for process in standby.report()["processes"]] == ranks
    os.kill(ranks[-1], signal.SIGKILL)
    standby.until("failed", 1)
    standby.order(2)
    standby.until("running", 2)
    hold.unlink()
    start = promptly(lambda: standby.report()["start"])
    assert start == {"standby": False, "cold_because": "standby was not ready"}
    promptly(lambda: "training" in standby.log("workerlog.1", 2))


def test_what_waits_was_compiled_by_the_launcher(standby: Any) -> None:
    """Images tell their interpreters to write no bytecode, and one that compiles the launcher first is late."""
    standby.launch["env"].append(["PYTHONDONTWRITEBYTECODE", "1"])
    begin(standby)
    line = Path(f"/proc/{waiting(standby)['launcher']}/cmdline").read_bytes().split(b"\0")
    assert line[1:3] == [os.fsencode(standby.dir / "launcher.pyc"), b"parked-launcher"]
    (kept,) = (standby.dir / "standby" / "__pycache__").iterdir()
    assert kept.name.startswith("jobctl_standby.")
    assert begin_again(standby)["start"] == {"standby": True, "cold_because": None}


@BOTH
def test_nothing_waits_when_the_launcher_and_its_guard_are_killed(standby: Any) -> None:
    begin(standby)
    launcher = standby.started[-1].pid
    kill_together([launcher, *children(launcher)])
    standby.gone()


@BOTH
@pytest.mark.parametrize("command", ["stop", "finish"])
def test_nothing_waits_for_a_job_that_is_over(standby: Any, command: str) -> None:
    begin(standby)
    standby.order(1, command)
    standby.until("stopped")
    promptly(lambda: waiting(standby) == {})


def test_what_waits_is_kept_where_a_change_of_the_job_follows(standby: Any) -> None:
    """`scale` and `up` stop the processes first, where they replace or remove launchers."""
    terms = {"restarts": 9, "rules": [], "ports": [20000, 29999], "failures": []}
    begin(standby)
    standby.order(1, "stop", pause=1, autonomy={**terms, "base": {"number": 1, "id": "demo-1"}})
    assert standby.until("stopped")["standby"] == {"state": "ready", "reason": None}
    standby.order(2)
    assert begun_again(standby)["start"] == {"standby": True, "cold_because": None}


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
