"""A job that stands still: every node writes where its processes stand before any of them ends its own."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from jobctl.jobspec.launcher.process.record import ProcessRecord
from jobctl.jobspec.launcher.run.stacks import Stacks
from jobctl.jobspec.launcher.system.processes import start_ticks
from tests.launcher.conftest import PATIENCE, STALL
from tests.tools.waiting import promptly

if TYPE_CHECKING:
    from jobctl.jobspec.launcher.run.run import Run

BEGUN, HELD, WRITTEN = 1, 2, 3

WAITS = """\
import faulthandler, os, time
faulthandler.enable()
def waits_for_a_peer():
    {count}
    open('there', 'w').close()
    time.sleep(600)
waits_for_a_peer()
"""
COUNT = "open(os.environ['JOBCTL_PROGRESS_FILE'], 'w').write('7')"
COUNTS = WAITS.format(count=COUNT)
WHEN_TOLD = "while not os.path.exists('go'): time.sleep(0.01)"
NO_PY_SPY = {"PATH": "/usr/bin:/bin"}


class Peer(threading.Thread):
    """The launcher of node 1 as far as hangs go: it says how far it is with its stacks when it is asked."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.1)
        self.port: int = self.socket.getsockname()[1]
        self.level: int | None = BEGUN  # None: it does not answer
        self.heard: list[int] = []
        self.asked = 0
        self.over = False

    def run(self) -> None:
        while not self.over:
            try:
                data, sender = self.socket.recvfrom(4096)
            except TimeoutError:
                continue
            said = json.loads(data)
            if "hung" in said:
                self.heard.append(said["hung"])
                self.asked += said["asks"]
                if said["asks"] and self.level is not None:
                    self.say(sender[1], said["generation"], asks=False)

    def say(self, port: int, generation: str, *, asks: bool) -> None:
        """Say how far it is."""
        said = {"hung": self.level, "limit": 0.2, "asks": asks, "generation": generation, "node": 1}
        self.socket.sendto(json.dumps(said).encode(), ("127.0.0.1", port))

    def reaches(self, level: int) -> None:
        """Be so far, as whoever asks will hear."""
        self.level = level


@pytest.fixture
def peer() -> Iterator[Peer]:
    """Node 1."""
    made = Peer()
    made.start()
    yield made
    made.over = True
    made.join(PATIENCE)
    made.socket.close()


def begin(node: Any, peer: Peer) -> None:
    """Begin a generation of both nodes."""
    members = [
        {"node": number, "rank": number, "roles": ["trainer"], "host": "a", "address": "127.0.0.1", "nproc": 1}
        for number in (0, 1)
    ]
    members[1]["port"] = peer.port
    node.order(1, members=members)


def stopped(node: Any) -> bool:
    """Say whether the process is held still."""
    pid = node.report()["processes"][0]["pid"]
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


@pytest.mark.every_python
def test_what_dies_of_being_asked_is_asked_once_all_nodes_hold_theirs_still(node: Any, peer: Peer) -> None:
    script = WAITS.replace("def ", f"{WHEN_TOLD}\ndef ").format(count=COUNT)
    node.start(command=node.script(script), hang_timeout=0.5, environ=NO_PY_SPY)
    begin(node, peer)
    node.until("running")
    peer.say(node.report()["port"], "demo-1", asks=False)  # who is not heard for a second is not waited for
    node.looks()
    (node.root / "go").touch()
    promptly(lambda: HELD in peer.heard)
    promptly(lambda: stopped(node))  # a busy kernel takes its time to stop a process
    assert WRITTEN not in peer.heard
    peer.reaches(HELD)
    promptly(lambda: peer.heard.count(WRITTEN) > 2)  # it asks until the other has written its own
    report = node.report()
    assert (report["state"], report["stacks_written"]) == ("running", True)
    where = f"waits_for_a_peer ({node.dir.parent}/script-0.py:7)"
    assert report["processes"][0]["where"] == where
    assert report["processes"][0]["stack"][0].startswith(f'File "{node.dir.parent}/script-0.py", line 7')
    peer.reaches(WRITTEN)
    assert node.until("failed")["failure"]["kind"] == "hang"


def test_nobody_waits_for_the_stack_of_one_that_died_of_being_asked(tmp_path: Path) -> None:
    """Paddle handles SIGABRT itself: it prints where its C++ code is, and ends."""
    kept: dict[int, str] = {}
    process = ProcessRecord(0, state="running", pid=os.getpid(), start_ticks=start_ticks(os.getpid()))
    run = SimpleNamespace(
        look=lambda: None,
        stacks={},
        processes=[process],
        folders=SimpleNamespace(logs=str(tmp_path)),
        launch=SimpleNamespace(log_name="workerlog"),
        keep_stack=kept.__setitem__,
    )

    def pause(seconds: float) -> bool:
        """Have its guard write its last words, then its end; nobody waits after that."""
        assert process.state == "running", "it waits"
        Path(stacks.logs[0]).write_text("C++ Traceback (most recent call last)\n")
        process.state = "failed"
        return True

    stacks = Stacks(cast("Run", run), pause)
    Path(stacks.logs[0]).touch()
    stacks.wait({0: 0})
    assert kept == {0: "C++ Traceback (most recent call last)\n"}


def test_a_node_that_is_asked_joins(node: Any, peer: Peer) -> None:
    """Also one whose rank counts no steps: often rank 0 alone does."""
    node.start(command=node.script(WAITS.format(count="pass")), hang_timeout=600.0, environ=NO_PY_SPY)
    begin(node, peer)
    promptly((node.root / "there").exists)
    peer.reaches(WRITTEN)
    peer.say(node.report()["port"], "demo-1", asks=True)
    report = node.until("failed")
    assert (report["failure"]["kind"], report["reason"]) == ("hang", "no progress for 0 s (hang_timeout)")
    assert report["processes"][0]["where"] == f"waits_for_a_peer ({node.dir.parent}/script-0.py:6)"
    promptly(lambda: peer.heard[-1:] == [WRITTEN])  # what it has sent arrives a moment after its report


def test_a_node_that_moves_goes_on(node: Any, peer: Peer) -> None:
    steps = "import os, time\nfor step in range(10**6):\n"
    steps += "    open(os.environ['JOBCTL_PROGRESS_FILE'], 'w').write(str(step)); time.sleep(0.01)"
    node.start(command=node.script(steps), hang_timeout=600.0)
    begin(node, peer)
    promptly(lambda: node.report().get("progress"))
    said = {"hung": BEGUN, "limit": 2 * STALL, "asks": True, "generation": "demo-1", "node": 1}
    peer.socket.sendto(json.dumps(said).encode(), ("127.0.0.1", node.report()["port"]))
    promptly(lambda: peer.heard)
    before = node.report()["progress"]
    promptly(lambda: node.report()["progress"] > before)
    assert (peer.heard[0], node.report()["state"]) == (WRITTEN, "running")


def test_a_node_that_may_go_on_alone_only_shows_where_it_stands(node: Any, peer: Peer) -> None:
    ask = COUNTS.replace("enable()", "register(10)")
    node.start(command=node.script(ask), hang_timeout=600.0, rejoin=3, environ=NO_PY_SPY)
    begin(node, peer)
    promptly((node.root / "there").exists)
    promptly(lambda: node.report()["progress"] == 7)
    promptly(lambda: peer.say(node.report()["port"], "demo-1", asks=True) or node.report()["stacks_written"])
    report = node.report()
    assert (report["state"], len(node.pids("script-0"))) == ("running", 1)
    assert report["processes"][0]["where"] == f"waits_for_a_peer ({node.dir.parent}/script-0.py:6)"


def test_a_node_that_is_not_heard_keeps_nobody_waiting(node: Any, peer: Peer) -> None:
    peer.level = None
    node.start(command=node.script(COUNTS), hang_timeout=0.5, environ=NO_PY_SPY)
    begin(node, peer)
    assert node.until("failed")["failure"]["kind"] == "hang"
    promptly(lambda: WRITTEN in peer.heard)
    assert peer.asked < 10  # four times a second, for one second; who answers is asked for ten


def test_a_tool_that_cannot_be_run_is_done_without(node: Any, peer: Peer) -> None:
    """Such as where no more processes may be: a launcher that ended with it could not say that the job hangs."""
    peer.level = WRITTEN
    (node.root / "py-spy").write_text("#!/of/an/interpreter/that/is/gone\n")
    (node.root / "py-spy").chmod(0o755)
    node.start(command=node.script(COUNTS), hang_timeout=0.5, environ={"PATH": f"{node.root}:/usr/bin:/bin"})
    begin(node, peer)
    report = node.until("failed")
    assert report["failure"]["kind"] == "hang"
    assert report["processes"][0]["where"] == f"waits_for_a_peer ({node.dir.parent}/script-0.py:6)"
