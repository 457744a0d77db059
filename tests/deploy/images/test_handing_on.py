"""Hosts that hand an image on: who takes it from whom, and whole transfers between hosts that this machine plays."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import handing_on
from jobctl.jobspec.deploy.host.chain import Chain, Link
from jobctl.jobspec.deploy.host.handing_on import HandingHost, HandingOn
from jobctl.jobspec.deploy.host.scripts import HAND_ON, MARK, frames, hand_on, holding, joined, packed
from jobctl.jobspec.deploy.host.scripts.frames import Unmarked, Window, feed, receive, sealed
from jobctl.jobspec.deploy.store.processes import start_ticks
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport
from tests.deploy.images.handing import Gated, Played
from tests.tools.waiting import PROMPT, promptly

KEY = b"k" * 32


def links(*pairs: str) -> list[Link]:
    return [Link(*pair.split("<")) for pair in pairs]


def test_each_host_takes_it_from_the_one_before() -> None:
    assert Chain("h1", ["h2", "h3", "h4"]).links == links("h2<h1", "h3<h2", "h4<h3")


def test_what_a_lost_host_would_have_handed_on_comes_from_the_one_before_it() -> None:
    chain = Chain("h1", ["h2", "h3", "h4"])
    assert chain.lose("h3") == links("h4<h2")
    assert chain.lose("h3") == []
    assert chain.links == links("h2<h1", "h4<h2")


def test_a_host_that_cannot_reach_one_takes_it_from_another() -> None:
    chain = Chain("h1", ["h2", "h3", "h4"])
    assert chain.cut("h3", "h2") == links("h3<h1")
    assert chain.cut("h3", "h2") == []  # told twice
    assert chain.cut("h3", "h1") == links("h4<h2")  # only h4 is left, which takes it from h3
    assert (chain.lost, chain.links) == ({"h3"}, links("h2<h1", "h4<h2"))


def test_the_first_one_may_take_it_from_one_behind_it_that_needs_another() -> None:
    chain = Chain("h1", ["h2", "h3"])
    chain.cut("h3", "h2")
    assert chain.cut("h2", "h1") == links("h2<h3")


def test_all_are_lost_with_their_source_but_those_that_have_all() -> None:
    chain = Chain("h1", ["h2", "h3", "h4"])
    chain.lose("h1")
    assert (chain.lost, chain.links) == ({"h1", "h2", "h3", "h4"}, [])
    chain = Chain("h1", ["h2", "h3", "h4"])
    chain.has_all("h2")
    assert chain.lose("h1") == []
    assert chain.links == links("h3<h2", "h4<h3")


def test_a_slow_host_becomes_the_last() -> None:
    chain = Chain("h1", ["h2", "h3", "h4", "h5"])
    assert chain.move_last("h3") == links("h4<h2", "h3<h5")
    assert chain.links == links("h2<h1", "h3<h5", "h4<h2", "h5<h4")
    assert chain.move_last("h3") == []  # it is the last
    assert chain.move_last("h2") == links("h4<h1", "h2<h3")


def test_a_host_that_has_all_gives_it_to_a_slow_one() -> None:
    chain = Chain("h1", ["h2", "h3", "h4"])
    chain.has_all("h4")
    chain.has_all("h2")
    assert chain.move_last("h3") == []
    chain = Chain("h1", ["h2", "h3", "h4"])
    chain.lose("h4")
    assert chain.move_last("h2") == links("h3<h1", "h2<h3")


def test_a_frame_of_somebody_without_the_key_is_refused() -> None:
    frame = sealed(KEY, "D", 7, b"body")
    assert receive(KEY, io.BytesIO(frame.head + frame.body)) == frame
    for bad in (frame.head + b"evil", frame.head.replace(b"D 7", b"D 8") + frame.body):
        with pytest.raises(Unmarked):
            receive(KEY, io.BytesIO(bad))
    with pytest.raises(Unmarked):
        receive(b"x" * 32, io.BytesIO(frame.head + frame.body))
    with pytest.raises(EOFError):
        receive(KEY, io.BytesIO(frame.head + b"bo"))


def put(window: Window, count: int) -> None:
    for at in range(window.end, window.end + 10 * count, 10):
        window.put(sealed(KEY, "D", at, b"x" * 10))


def test_a_window_keeps_what_a_host_may_ask_for_and_no_more() -> None:
    window = Window(ahead=30, kept=50)
    put(window, 20)
    window.put(sealed(KEY, "D", 100, b"x" * 10))  # of another one that sends it too
    assert window.end == 200
    assert [window.join(at) is not None for at in (100, 150, 200, 210)] == [False, True, True, True]


def test_a_window_waits_for_the_slowest() -> None:
    window = Window(ahead=30, kept=50)
    slow = window.join(0)
    assert slow is not None
    filling = threading.Thread(target=put, args=(window, 9), daemon=True)
    filling.start()
    taken = [window.next(slow, 60.0) for _ in range(6)]
    assert [frame.at for frame in taken if frame] == [0, 10, 20, 30, 40, 50]
    assert window.end <= 90
    window.leave(slow)
    filling.join(60)
    assert window.end == 90


def test_a_source_waits_for_the_first_that_takes_it() -> None:
    window = Window(waits=True, ahead=30, kept=50)
    filling = threading.Thread(target=put, args=(window, 20), daemon=True)
    filling.start()
    while window.end < 30:
        filling.join(0.01)
    taker = window.join(0)
    assert taker is not None
    assert [frame.at for _ in range(20) if (frame := window.next(taker, 60.0))] == list(range(0, 200, 10))
    filling.join(60)


def test_a_host_whose_place_has_gone_is_told() -> None:
    window, sent = Window(ahead=30, kept=50), list[frames.Frame]()
    put(window, 20)
    feed(window, KEY, 10, sent.append)
    assert [frame.kind for frame in sent] == ["X"]


# Whole transfers.


@pytest.fixture
def played(tmp_path: Path) -> Played:
    return Played(tmp_path, ["h2", "h3", "h4"])


@pytest.mark.parametrize("here", [True, False])
def test_an_image_goes_through_all_hosts(played: Played, *, here: bool) -> None:
    transfer = HandingOn("app:1", played.here() if here else played.source(), played.jobs)
    assert transfer.run() == {}
    assert played.loaded() == {"h2": True, "h3": True, "h4": True}
    ways = {line.rpartition(":")[0].rpartition(" from ")[2] for line in played.told if " gets " in line}
    assert ways <= {"this machine" if here else "h1", "h2", "h3"}


def test_the_last_host_gets_its_first_bytes_before_the_source_has_the_first_megabyte(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each host adds the time of a piece: fifteen of a megabyte would make a change of 50 MB a third slower."""
    monkeypatch.setattr(handing_on, "TRANSFER_TIMEOUT", PROMPT)
    gated = Gated(played, monkeypatch, at=600_000)

    def tell(text: str) -> None:
        if "h4 gets" in text:
            gated.go.touch()

    played.jobs["h4"].tell = tell
    assert HandingOn("app:1", gated.source, played.jobs).run() == {}
    assert played.loaded() == {"h2": True, "h3": True, "h4": True}


def test_the_program_takes_little_of_the_line(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves this machine once for each host: 32 times 6 kB are 0.4 % of 50 MB."""
    started, sent, start = list[str](), dict[str, int](), LocalTransport.start

    def noted(transport: LocalTransport, argv: list[str], terminal: Any = None) -> Any:
        command = start(transport, argv, terminal)
        send = command.send
        started.append(argv[-1])

        def counted(data: bytes) -> None:
            sent.setdefault(transport.host, len(data) + len(argv[-1]))  # the first: the program and its order
            send(data)

        command.send = counted  # type: ignore[method-assign]
        return command

    monkeypatch.setattr(LocalTransport, "start", noted)
    assert HandingOn("app:1", played.here(), played.jobs).run() == {}
    assert all(text.startswith(f"# {MARK}\n") for text in started)
    assert sent.keys() == {"h2", "h3", "h4"}
    assert max(sent.values()) < 6_500


def test_the_program_runs_also_where_it_cannot_be_read_from_the_input() -> None:
    """In a container of an image, on a host without Python: a shell has read the order before it."""
    program, order = packed(joined(*HAND_ON)), {"key": KEY.hex(), "addr": "127.0.0.1", "save": None, "without": None}
    argv = [sys.executable, "-c", holding(program)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write(json.dumps(order).encode() + b"\nall of the image")
        run.stdin.close()
        said = [json.loads(run.stdout.readline()) for _ in range(2)]
        run.kill()
    assert [said[0].keys() >= {"port"}, said[1]] == [True, {"at": 16, "over": True, "got": 0}]


def test_what_is_not_new_is_said_at_every_third_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word costs this machine an answer: 32 hosts that speak twice a second take a tenth of a MB in half a minute."""
    relay, said = hand_on.Relay({"key": KEY.hex(), "addr": "127.0.0.1"}), list[dict[str, object]]()
    monkeypatch.setattr(relay, "tell", lambda **words: said.append(words))
    for beat in range(9):
        if beat == 4:
            relay.window.put(sealed(KEY, "D", 0, b"more"))
        relay._speak()
    assert [words["at"] for words in said] == [0, 0, 4, 4]


def test_a_host_without_python_does_not_hold_up_the_others(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    start = LocalTransport.start

    def without(self: LocalTransport, argv: list[str], terminal: Any = None) -> Any:
        return start(self, ["sh", "-c", "exec python9"] if self.host == "h3" else argv, terminal)

    monkeypatch.setattr(LocalTransport, "start", without)
    transfer = HandingOn("app:1", played.here(), played.jobs)
    lost = transfer.run()
    assert (list(lost), "not found" in lost["h3"], transfer.unable) == (["h3"], True, {"h3"})
    assert played.loaded() == {"h2": True, "h4": True}


def test_a_host_that_logs_in_late_throws_out_no_other(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def late(*asked: Any) -> Any:
        outcome = fan_out(*asked)
        clock[0] += 2 * handing_on.READY
        return outcome

    monkeypatch.setattr(handing_on, "fan_out", late)
    monkeypatch.setattr(handing_on, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + clock[0]))
    transfer = HandingOn("app:1", played.source(), played.jobs)
    assert (transfer.run(), transfer.unable) == ({}, set())
    assert played.loaded() == {"h2": True, "h3": True, "h4": True}


def test_a_host_whose_words_lie_unread_is_not_silent(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the end of the program on a lost host, which this machine waits for."""
    clock, command = [0.0], SimpleNamespace(close=list, send=list)
    monkeypatch.setattr(handing_on, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    transfer = HandingOn("app:1", played.source(), played.jobs)
    for name in ("h2", "h3", "h4"):
        transfer._hosts[name] = HandingHost(name, list, command, "127.0.0.1", heard=0.0, moved=0.0)  # type: ignore[arg-type]
    clock[0] = 2 * handing_on.SILENCE_TIMEOUT
    for name in ("h2", "h3"):
        transfer._events.put((name, {"at": 0}))
    transfer._step()
    assert transfer.lost == {"h4": "it has said nothing for 12 s"}


@pytest.mark.parametrize(("code", "unable"), [(os.EX_TEMPFAIL, set[str]()), (1, {"h2"})])
def test_a_host_that_can_take_it_later_is_asked_again(played: Played, code: int, unable: set[str]) -> None:
    """As a folder of data is for a moment, where a program of an earlier transfer has not ended yet."""
    played.jobs["h2"].docker = ("sh", "-c", f"exit {code}")
    transfer = HandingOn("app:1", played.source(), played.jobs)
    assert (list(transfer.run()), transfer.unable) == (["h2"], unable)


def test_a_full_engine_hands_on_all_the_same(played: Played) -> None:
    played.jobs["h2"].docker = ("sh", "-c", "echo no space left on device; exit 1")
    lost = HandingOn("app:1", played.source(), played.jobs).run()
    assert lost == {"h2": "no space left on device"}
    assert played.loaded() == {"h3": True, "h4": True}


def test_a_source_that_cannot_save_it_is_the_end(played: Played) -> None:
    lost = HandingOn("app:1", played.source(save=["sh", "-c", "echo no such image >&2; exit 1"]), played.jobs).run()
    assert set(lost) == {"h2", "h3", "h4"}
    assert not any(played.loaded().values())


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_one_that_ends_or_hangs_in_the_middle_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    played = Played(tmp_path, ["h2", "h3", "h4"], 24_000_000)  # more than kernels keep for one that hangs
    monkeypatch.setattr(handing_on, "SILENCE_TIMEOUT", 20.0)
    monkeypatch.setattr(handing_on, "TRANSFER_TIMEOUT", 30.0)
    gated = Gated(played, monkeypatch)
    gated.signal(played, "h3", number)
    try:
        lost = HandingOn("app:1", gated.source, played.jobs).run()
        assert list(lost) == ["h3"], lost
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(gated.programs["h3"]._process.pid, signal.SIGKILL)
    assert {name: right for name, right in played.loaded().items() if name != "h3"} == {"h2": True, "h4": True}


def test_nothing_goes_on_after_an_interruption(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(played, monkeypatch)

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    played.jobs["h4"].tell = interrupt
    with pytest.raises(KeyboardInterrupt):
        HandingOn("app:1", gated.source, played.jobs).run()
    assert set(gated.programs) == {"h1", "h2", "h3", "h4"}
    assert all(program._process.wait(60) is not None for program in gated.programs.values())


def test_a_program_ends_with_its_input_and_with_what_it_has_started(played: Played) -> None:
    """As it does when the connection to its host is lost."""
    order = {"key": KEY.hex(), "addr": "127.0.0.1", "load": ["sh", "-c", "echo $$ > $0; exec cat > /dev/null"]}
    order["load"].append(str(played.folder / "pid"))  # type: ignore[attr-defined]
    argv = [sys.executable, "-c", joined(*HAND_ON)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps(order).encode() + b"\n")
        program.stdin.flush()
        assert b"port" in program.stdout.readline()
        while not (played.folder / "pid").exists() or not (played.folder / "pid").read_text():
            program.stdout.readline()
        program.stdin.close()
        assert program.wait(PROMPT) == 0
    loads = int((played.folder / "pid").read_text())
    promptly(lambda: start_ticks(loads) is None)


def test_who_does_not_prove_to_have_the_key_gets_nothing() -> None:
    relay = hand_on.Relay({"key": KEY.hex(), "addr": "127.0.0.1"})
    relay.window.put(sealed(KEY, "D", 0, b"secret"))
    answers = []
    for key in (b"x" * 32, KEY):
        ours, its = socket.socketpair()
        giving = threading.Thread(target=relay._give, args=(its,), daemon=True)
        giving.start()
        with ours, ours.makefile("rb") as stream:
            nonce = stream.readline().decode().strip()
            words = f"0 0 {hashlib.sha256().hexdigest()}"
            ours.sendall(f"{words} {frames.proof(key, f'get {nonce} {words}')}\n".encode())
            answers.append(stream.readline() != b"")
    assert answers == [False, True]
