"""A node runner, as its coordinator sees it: a launcher that begins, and what keeps one from it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.allocation.launching import reason_in
from jobctl.jobspec.allocation.messages import TICK, TICK_KEYS, TOKEN, Datagrams
from jobctl.jobspec.allocation.node_runner import EXCLUDED, FIRST_TICKS, NodeRunner, pause_after
from jobctl.jobspec.launcher.system.processes import EXIT_MOVES
from jobctl.jobspec.render.launcher import allocation
from tests.slurm.cluster import wait_for
from tests.tools.processes import read

# Writes its report, as a launcher does as soon as it begins.
_BEGINS = 'echo "{}" > "$work/new"; mv "$work/new" "$work/node-$2/report.json"'


class PlayedCoordinator:
    """Answers one runner, whose launchers `start.sh` plays."""

    def __init__(self, work: Path) -> None:
        self.work, self.datagrams, self.said = work, Datagrams("t", TICK_KEYS), dict[str, Any]()
        settings = {"host_timeout": 60, "stop_grace": 1, "container": "none", "runner_python": sys.executable}
        (work / "allocation.py").write_bytes(allocation())
        (work / "slurm.json").write_text(json.dumps(settings))
        (work / "launch.json").write_text('[\n{"node": 0},\n{"node": 1}\n]\n')
        self.runner: subprocess.Popen[bytes] | None = None
        self.answer: dict[str, Any] = {"node": 1, "turn": 1}

    def script(self, text: str) -> None:
        """Write what plays the launcher."""
        (self.work / "start.sh").write_text(f'[ "$1" = start ] || exit 0\nwork={self.work}\n{text}\n')

    def start(self) -> None:
        """Start the runner."""
        argv = [sys.executable, str(self.work / "allocation.py"), "node", "--work", str(self.work)]
        argv += ["--address", "127.0.0.1", "--port", str(self.datagrams.port)]
        environ = {**os.environ, TOKEN: "t", "SLURMD_NODENAME": "s1", "SLURM_LOCALID": "0"}
        self.runner = subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE)

    def hears(self, **wanted: Any) -> bool:
        """Answer what has come; say whether the runner's last words have these fields."""
        for message, sender in self.datagrams.receive():
            self.said = message
            same = {"who": message["who"], "tick": message["tick"], "seq": message["tick"], "leave": False}
            place = {"peer_port": 30000, "address": "127.0.0.1", "version": 0, "home": "s1", "image": None}
            self.datagrams.send({**same, **place, "stop": False, **self.answer}, sender)
        return bool(self.said) and {key: self.said.get(key) for key in wanted} == wanted

    def until(self, **wanted: Any) -> None:
        wait_for(lambda: self.hears(**wanted), f"{wanted}, and not {self.said}", 120.0)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedCoordinator]:
    made = PlayedCoordinator(tmp_path)
    yield made
    if made.runner is not None:
        made.runner.kill()
        made.runner.communicate()


def test_a_runner_says_what_kept_a_launcher_from_beginning_and_tries_again_when_told(played: PlayedCoordinator) -> None:
    played.script(
        'echo "loading" >&2; echo "Error: no such device" >&2; echo "See \'engine run --help\'." >&2; exit 125'
    )
    played.start()
    played.until(node=1, turn=1, alive=False, ended=125, begun=False, refused="Error: no such device")
    played.script(f"{_BEGINS}; exec sleep 1000")
    played.answer["turn"] = 2
    played.until(node=1, turn=2, alive=True, ended=None, begun=True, refused=None)
    assert played.runner is not None
    assert played.runner.stderr is not None
    assert os.read(played.runner.stderr.fileno(), 4096).startswith(b"loading\nError: no such device\n")


def test_a_launcher_that_has_begun_and_fails_is_no_machine_that_refuses(played: PlayedCoordinator) -> None:
    played.script(f"{_BEGINS}; echo Error: of the job >&2; exit 3")
    played.start()
    played.until(node=1, turn=1, ended=3, begun=True, refused=None)


def test_a_runner_says_that_a_rule_has_its_node_leave_the_machine(played: PlayedCoordinator) -> None:
    played.script(f"{_BEGINS}; exit {EXIT_MOVES}")
    played.start()
    played.until(node=1, turn=1, alive=False, ended=EXIT_MOVES)
    assert (played.said["begun"], played.said["refused"], played.said["excluded"]) == (False, EXCLUDED, True)
    played.script(f"{_BEGINS}; exec sleep 1000")
    played.answer["turn"] = 2
    played.until(node=1, turn=2, alive=True, begun=True, refused=None, excluded=False)


def test_a_machine_may_refuse_a_launcher_that_was_killed(played: PlayedCoordinator) -> None:
    played.script(f"{_BEGINS}; exec sleep 1000")
    played.start()
    played.until(alive=True, begun=True)
    played.script("exit 126")
    wait_for(lambda: sleeping(played.runner), "the launcher, which has begun, to sleep")
    (launcher,) = sleeping(played.runner)
    os.kill(launcher, signal.SIGKILL)
    played.until(alive=False, begun=False, ended=126, refused="exit code 126")


def test_what_a_runner_itself_cannot_write_is_a_reason_too(played: PlayedCoordinator) -> None:
    played.script("exec sleep 1000")
    (played.work / "node-1").write_text("")  # a file where the node's folder belongs
    played.start()
    played.until(alive=False, refused=f"{played.work}/node-1: File exists")


def test_a_runner_that_cannot_make_its_own_folder_says_so(played: PlayedCoordinator) -> None:
    """As on a file system without room. A runner that ends without a word looks like a machine that does not answer."""
    played.script("exec sleep 1000")
    (played.work / "hosts").write_text("")
    played.start()
    played.until(alive=False, refused=f"{played.work}/hosts/s1: Not a directory")


def test_a_launcher_does_not_begin_as_the_node_that_was_there_before(played: PlayedCoordinator) -> None:
    played.script("exec sleep 1000")
    launch = played.work / "hosts" / "s1" / "0" / "launch.json"
    launch.mkdir(parents=True)  # nothing can take its place
    played.start()
    played.until(alive=False, ended=1, refused=f"{launch}: cannot be written; slurm.out says why")


def test_addresses_that_cannot_be_written_are_asked_for_again(played: PlayedCoordinator) -> None:
    names = played.work / "hosts" / "s1" / "0" / "names.json"
    (names / "in the way").mkdir(parents=True)
    played.script(f"{_BEGINS}; exec sleep 1000")
    played.answer.update(version=1, names={"node-0": ["10.0.0.1", 30000]})
    played.start()
    played.until(alive=True, begun=True, names=0)
    shutil.rmtree(names)
    played.until(names=1)
    assert json.loads(names.read_text()) == {"node-0": ["10.0.0.1", 30000]}


def test_a_runner_that_is_told_to_end_says_so_and_goes(played: PlayedCoordinator) -> None:
    """Its machine is switched off: the coordinator takes it for lost, or begins again there once it is back."""
    played.script(f"{_BEGINS}; exec sleep 1000")
    played.start()
    played.until(alive=True, begun=True, leaving=False)
    assert played.runner is not None
    played.runner.terminate()
    played.until(alive=False, ended=143, leaving=True)
    assert played.runner.wait(120) == 0


def test_a_launcher_can_read_how_long_its_processes_get_to_end(played: PlayedCoordinator) -> None:
    """A user may have asked for another time than that of the job, and the launcher is what waits."""
    played.script(f"trap 'cat \"$4/launch.json\" >&2; exit 143' TERM; {_BEGINS}; while :; do sleep 0.1; done")
    played.start()
    played.until(alive=True, begun=True)
    played.answer.update(stop=True, grace=600.0)
    played.until(alive=False, ended=143)
    assert played.runner is not None
    assert played.runner.stderr is not None
    assert json.loads(os.read(played.runner.stderr.fileno(), 4096)) == {
        "node": 1,
        "peer_port": 30000,
        "stop_grace": 600.0,
    }


@pytest.mark.parametrize(("asked", "ends"), [({}, 106.0), ({"grace": 1}, 106.0), ({"grace": 600.0}, 705.0)])
def test_a_runner_waits_as_long_as_processes_may_take_to_end(
    tmp_path: Path, asked: dict[str, Any], ends: float
) -> None:
    """A coordinator of an earlier version does not say how long."""
    (tmp_path / "slurm.json").write_text(json.dumps({"host_timeout": 6, "stop_grace": 1, "container": "none"}))
    runner: Any = NodeRunner(argparse.Namespace(work=str(tmp_path), address="127.0.0.1", port=9))
    runner.order.update(stop=True, **asked)
    runner.launcher = SimpleNamespace(send_signal=lambda number: None)
    runner.end(100.0)
    assert runner.deadline == ends


def test_the_reason_is_the_error_and_not_the_advice_below_it_or_the_trials_beside_it() -> None:
    assert reason_in("") == ""
    assert reason_in("cannot do it\n\n") == "cannot do it"
    assert reason_in("docker: Error response from daemon: no.\nSee 'docker run --help'.\n") == (
        "docker: Error response from daemon: no."
    )
    assert reason_in("INFO: a\nFATAL:   no image\nINFO: b\n") == "FATAL:   no image"
    loading = (
        "Error: payload does not match any of the supported image formats:\n"
        " * oci: open i.tar/index.json: not a directory\n"
        " * oci-archive: open index.json: no such file or directory\n"
        " * docker-archive: writing blob: no space left on device\n"
        " * dir: open i.tar/manifest.json: not a directory\n"
    )
    assert reason_in(loading) == "writing blob: no space left on device"
    long = reason_in(f"Error: {'x' * 1000}: no space left")
    assert (long[:10], long[-13:], len(long) < 310) == ("Error: xxx", "no space left", True)


def children(runner: subprocess.Popen[bytes] | None) -> list[int]:
    assert runner is not None
    return [int(pid) for pid in Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()]


def sleeping(runner: subprocess.Popen[bytes] | None) -> list[int]:
    return [pid for pid in children(runner) if b"sleep" in read(str(pid), "cmdline")]


def test_a_runner_without_a_node_asks_often_at_first() -> None:
    """Not on many machines at a time, and not for as long as a spare waits."""
    assert pause_after(None, 0.0, 4) == FIRST_TICKS
    assert pause_after(None, 60.0, 4) == TICK
    assert pause_after(1, 0.0, 4) == TICK
    assert pause_after(None, 0.0, 100) == 0.2
    assert pause_after(None, 0.0, 4000) == TICK


def test_a_second_answer_to_a_tick_brings_a_node_and_renews_no_lease(tmp_path: Path) -> None:
    (tmp_path / "slurm.json").write_text(json.dumps({"host_timeout": 6, "stop_grace": 1, "container": "none"}))
    runner = NodeRunner(argparse.Namespace(work=str(tmp_path), address="127.0.0.1", port=9))
    runner.tell(100.0)
    answer = {"who": runner.who, "tick": 1, "seq": 1, "leave": False, "home": "s1", "node": None, "turn": 0}
    runner.hear(answer)
    runner.hear({**answer, "seq": 2, "node": 1, "turn": 1})
    assert (runner.order["node"], runner.has_lease(105.9), runner.has_lease(106.1)) == (1, True, False)
    runner.hear({**answer, "seq": 1})  # late
    runner.hear({**answer, "tick": 2, "seq": 3, "node": 2})  # of no tick of this runner's
    assert runner.order["node"] == 1


def test_a_runner_that_is_told_to_end_goes_once_its_launcher_has_ended_and_that_was_told(tmp_path: Path) -> None:
    (tmp_path / "slurm.json").write_text(json.dumps({"host_timeout": 6, "stop_grace": 1, "container": "none"}))
    runner = NodeRunner(argparse.Namespace(work=str(tmp_path), address="127.0.0.1", port=9))
    runner.ended = 143
    assert not runner.has_said_so(100.0)
    runner.signal, runner.ended = signal.SIGTERM, None
    assert not runner.has_said_so(200.0)
    runner.ended = 143
    assert [runner.has_said_so(now) for now in (300.0, 302.9, 303.1)] == [False, False, True]
