"""Pauses of a framework's launcher that one which was started from standby does not make."""

from __future__ import annotations

import hashlib
import importlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.order.order import Rendezvous
from jobctl.jobspec.launcher.run.environment import Environment
from jobctl.jobspec.launcher.standby import pauses as standby_pauses
from jobctl.jobspec.launcher.standby.messages import FrameworkStart, Gathering, NodePreparation
from jobctl.jobspec.launcher.standby.pauses import KnownPause, LauncherPauses, growing, no_turns
from jobctl.jobspec.render.launcher import launcher as program
from tests.launcher.conftest import PATIENCE
from tests.tools.frameworks import Name, python_of

# Pauses as a launcher does that meets others; `launch` is where it begins.
LAUNCHER = """\
import time

class Master:
    def begin(self):
        time.sleep(900)
        time.sleep(0.1)

    def ask(self):
        time.sleep(0.5)

def launch():
    Master().begin()
    print("it has begun")
"""
BEGIN = LAUNCHER[LAUNCHER.index("    def begin") : LAUNCHER.index("\n    def ask")]
ASK = LAUNCHER[LAUNCHER.index("    def ask") : LAUNCHER.index("\ndef launch")]


def known(method: str, source: str, shorter: Any) -> KnownPause:
    return KnownPause("meets_others", "Master", method, hashlib.sha256(source.encode()).hexdigest(), 1, shorter)


class Slept:
    """A module whose sleeps take no time: `seconds` are all of them."""

    def __init__(self, module: Any) -> None:
        self.module, self.seconds = module, list[float]()
        module.time = SimpleNamespace(sleep=self.seconds.append, time=lambda: 7.0)

    def of(self, method: str, times: int = 1) -> list[float]:
        """Return how long a method sleeps now."""
        self.seconds.clear()
        for _ in range(times):
            getattr(self.module.Master(), method)()
        return [*self.seconds]


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slept:
    (tmp_path / "meets_others.py").write_text(LAUNCHER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "meets_others", raising=False)
    both = known("begin", BEGIN, no_turns), known("ask", ASK, growing)
    monkeypatch.setattr(standby_pauses, "PAUSES", {"meets_others": both})
    return Slept(importlib.import_module("meets_others"))


def test_one_that_is_alone_at_its_address_waits_for_no_turn(launcher: Slept) -> None:
    LauncherPauses("meets_others").shorten(Gathering(2, alone=True))
    assert launcher.of("begin") == [0.0, 0.1]
    assert launcher.module.time.time() == 7.0


def test_one_that_shares_its_address_waits_for_its_turn(launcher: Slept) -> None:
    LauncherPauses("meets_others").shorten(Gathering(2, alone=False))
    assert launcher.of("begin") == [900, 0.1]


@pytest.mark.parametrize(
    ("nodes", "seconds"), [(2, [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]), (16, [0.16, 0.32, 0.5]), (50, [0.5, 0.5])]
)
def test_who_has_come_is_asked_often_for_a_moment(launcher: Slept, nodes: int, seconds: list[float]) -> None:
    LauncherPauses("meets_others").shorten(Gathering(nodes))
    assert launcher.of("ask", len(seconds)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "pauses",
    [
        known("begin", BEGIN.replace("900", "901"), no_turns),
        known("end", BEGIN, no_turns),
        KnownPause("meets_nobody", "Master", "begin", "", 1, no_turns),
    ],
    ids=["another source", "no method", "no module"],
)
def test_a_launcher_that_is_not_known_makes_all_of_its_pauses(
    launcher: Slept, monkeypatch: pytest.MonkeyPatch, pauses: KnownPause
) -> None:
    monkeypatch.setattr(standby_pauses, "PAUSES", {"meets_others": (pauses,)})
    LauncherPauses("meets_others").shorten(Gathering(2, alone=True))
    assert launcher.of("begin") == [900, 0.1]


PARKED = """\
import sys
from jobctl.jobspec.launcher.standby import pauses as standby_pauses
from jobctl.jobspec.launcher.standby.launcher import parked_launcher
pause = standby_pauses.KnownPause("meets_others", "Master", "begin", sys.argv[2], 1, standby_pauses.no_turns)
standby_pauses.PAUSES = {"meets_others": (pause,)}
parked_launcher(int(sys.argv[1]))
"""


def test_what_waits_is_told_how_its_launchers_meet(launcher: Slept, tmp_path: Path) -> None:
    """It would sleep for a quarter of an hour."""
    node = NodePreparation([], ["guard"], ["train"], "/none", [], apart=False, module="meets_others:launch")
    start = FrameworkStart([], ["guard"], {}, str(tmp_path / "launch.log"), Gathering(2, alone=True))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        digest = hashlib.sha256(BEGIN.encode()).hexdigest()
        command = [sys.executable, "-c", PARKED, str(theirs.fileno()), digest]
        with subprocess.Popen(command, cwd=tmp_path, pass_fds=[theirs.fileno()]) as parked:
            theirs.close()
            ours.sendall(json.dumps(node.to_json()).encode() + b"\n")
            assert json.loads(ours.recv(1000)) == {"ready": True}
            ours.sendall(json.dumps(start.to_json()).encode() + b"\n")
            try:
                assert parked.wait(PATIENCE) == 0
            finally:
                parked.kill()
    assert (tmp_path / "launch.log").read_text() == "it has begun\n"


@pytest.mark.parametrize(
    ("members", "place", "alone"),
    [
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1", True),
        (["10.0.0.2", "10.0.0.1"], "10.0.0.1", False),  # another node's
        (["10.0.0.1", "10.0.0.1"], "10.0.0.1", False),  # two nodes of one host
        (["127.0.0.2", "127.0.0.3"], "127.0.0.2", True),  # of target local
        (["127.0.0.1", "10.0.0.2"], "127.0.0.1", False),
    ],
)
def test_a_node_is_alone_at_the_place_where_nobody_else_is(members: list[str], place: str, alone: bool) -> None:
    """Of `members`, the first is this node."""
    nodes = [SimpleNamespace(node=number, address=address) for number, address in enumerate(members)]
    numbered = SimpleNamespace(members=nodes, rendezvous=Rendezvous(place, 7, "demo-2"))
    this: Any = SimpleNamespace(numbered=numbered, member=nodes[0], meets=lambda: "10.0.0.1:7")
    assert Environment.gathering(this) == Gathering(2, "10.0.0.1:7", alone)


FIND = """\
import linecache
from launcher import LauncherPauses
for _, (code, line) in LauncherPauses("paddle.distributed.launch.main").found:
    print(code.co_name, linecache.getline(code.co_filename, line).strip())
"""


@pytest.mark.parametrize("paddle", ["paddle", "paddle-ps"])
def test_the_pauses_of_paddles_launcher_are_known(paddle: Name, tmp_path: Path) -> None:
    """Where this fails with a new version, look at what has changed in it, and whether the pauses may still be shorter."""
    (tmp_path / "launcher.py").write_bytes(program())
    argv = [python_of(paddle), "-c", FIND]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["lazy_init time.sleep(2 * random.random())", "sync_peers time.sleep(0.5)"]
