"""A transfer of an image that was interrupted goes on where it was, on hosts that this machine plays."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.handing_on import HandingOn
from jobctl.jobspec.deploy.host.scripts import hand_on
from jobctl.jobspec.deploy.host.scripts.frames import PIECE, Frame, Unmarked, Window, feed, fill, same, sealed
from jobctl.jobspec.deploy.host.scripts.kept import KeptArchive
from jobctl.jobspec.deploy.store.processes import start_ticks
from tests.deploy.images.handing import Gated, Played
from tests.tools.own_time import set_time
from tests.tools.waiting import PROMPT, promptly

KEY = b"k" * 32
SIZE = 24_000_000


@pytest.fixture
def played(tmp_path: Path) -> Played:
    made = Played(tmp_path, ["h2", "h3", "h4"], SIZE)
    made.keep = "image"
    return made


def interrupted(played: Played, monkeypatch: pytest.MonkeyPatch, how: type[BaseException] = KeyboardInterrupt) -> None:
    """Interrupt a transfer when the last host has a part of the image."""
    gated = Gated(played, monkeypatch)

    def interrupt(text: str) -> None:
        if "h4 gets" in text:
            raise how

    played.jobs["h4"].tell = interrupt
    with pytest.raises(how):
        HandingOn("app:1", gated.source, played.jobs).run()
    assert all(program._process.wait(60) is not None for program in gated.programs.values())
    played.jobs["h4"].tell = played.told.append


def got(transfer: HandingOn) -> dict[str, int]:
    return {name: host.got for name, host in transfer._hosts.items()}


@pytest.mark.parametrize("here", [True, False])
def test_what_has_come_does_not_travel_again(played: Played, monkeypatch: pytest.MonkeyPatch, *, here: bool) -> None:
    interrupted(played, monkeypatch)
    parts = {host: path.stat().st_size for host, path in played.kept().items()}
    assert set(parts) == {"h2", "h3", "h4"}
    assert all(PIECE <= size < SIZE for size in parts.values()), parts
    transfer = HandingOn("app:1", played.here() if here else played.source(), played.jobs)
    assert transfer.run() == {}
    assert played.loaded() == {"h2": True, "h3": True, "h4": True}
    for host, size in parts.items():
        assert got(transfer)[host] <= len(played.image) - size // PIECE * PIECE
    assert played.kept() == {}
    assert list(played.folder.glob("own/*/*")) == []


def test_wrong_bytes_in_what_was_kept_travel_again(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(played, monkeypatch)
    with played.kept()["h3"].open("r+b") as file:
        file.seek(10)
        file.write(b"wrong")
    transfer = HandingOn("app:1", played.source(), played.jobs)
    assert transfer.run() == {}
    assert played.loaded() == {"h2": True, "h3": True, "h4": True}


def test_what_was_kept_of_another_version_does_no_harm(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(played, monkeypatch)
    played.image = Played(played.folder, [], 3_000_000).image
    assert HandingOn("app:1", played.source(), played.jobs).run() == {}
    assert (played.loaded(), played.kept()) == ({"h2": True, "h3": True, "h4": True}, {})


def test_a_host_that_dies_in_the_middle_goes_on_from_there(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(played, monkeypatch)
    gated.signal(played, "h3", signal.SIGKILL)
    assert list(HandingOn("app:1", gated.source, played.jobs).run()) == ["h3"]
    played.jobs = {"h3": played.jobs["h3"]}
    size = played.kept()["h3"].stat().st_size
    transfer = HandingOn("app:1", played.source(), played.jobs)
    assert transfer.run() == {}
    assert size >= PIECE
    assert got(transfer)["h3"] <= len(played.image) - size // PIECE * PIECE
    assert played.kept() == {}


def test_nothing_is_kept_where_there_is_no_room(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    source = played.source()
    object.__setattr__(source, "size", 1 << 60)
    transfer = HandingOn("app:1", source, played.jobs)
    assert (transfer.run(), played.kept()) == ({}, {})
    assert all(played.loaded().values())


def test_one_that_is_far_behind_gets_it_from_the_file(tmp_path: Path) -> None:
    window = Window(ahead=2 * PIECE, store=KeptArchive(str(tmp_path / "kept"), "image"))
    content = os.urandom(6 * PIECE + 7)
    slow = window.join(0)
    fill(window, KEY, [content])  # does not wait for it
    assert len(window._frames) < 5
    assert slow is not None
    assert b"".join(frame.body for _ in range(8) if (frame := window.next(slow, 0.0))) == content
    sent = list[bytes]()
    have = [bytes.fromhex(sealed(KEY, "D", 0, content[at : at + PIECE]).digest) for at in range(0, 4 * PIECE, PIECE)]
    feed(window, KEY, PIECE, lambda frame: sent.append(frame.kind.encode()), have[1:])
    assert b"".join(sent) == b"SSSDDDE"


def test_only_one_program_writes_into_a_file(tmp_path: Path) -> None:
    first = KeptArchive(str(tmp_path), "image")
    with pytest.raises(OSError, match="unavailable"):
        KeptArchive(str(tmp_path), "image")
    first.write(3, b"abc")
    assert first.read(3, 10) == b"abc"


def test_a_piece_that_has_changed_since_it_was_looked_at_is_not_used(tmp_path: Path) -> None:
    relay = hand_on.Relay({"key": KEY.hex(), "addr": "", "load": ["true"], "keep": [str(tmp_path / "kept"), "image"]})
    assert relay.kept is not None
    relay.kept.write(0, b"changed")
    with pytest.raises(Unmarked):
        relay._put(same(KEY, sealed(KEY, "D", 0, b"as kept")))
    relay.kept.write(0, b"as kept")
    relay._put(same(KEY, sealed(KEY, "D", 0, b"as kept")))
    assert (relay.window.end, relay.got) == (7, 0)


def test_a_program_waits_for_one_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which notices only then that nobody needs it."""
    order = {"keep": [str(tmp_path), "image"]}
    holder = KeptArchive(str(tmp_path), "image")
    holder.write(0, b"abc")
    monkeypatch.setattr(hand_on, "LOCKED", 0.0)
    assert hand_on.kept(order) is None
    monkeypatch.setattr(hand_on, "LOCKED", 60.0)
    set_time(monkeypatch, hand_on, sleep=lambda seconds: os.close(holder._file))
    found = hand_on.kept(order)
    assert found is not None
    assert found.size == 3


class FullDisk(KeptArchive):
    """The file of an archive, on a disk that holds six pieces."""

    def write(self, at: int, body: bytes) -> None:
        if at >= 6 * PIECE:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(at, body)


def test_what_was_kept_makes_room_on_a_disk_that_has_become_full(tmp_path: Path) -> None:
    store = FullDisk(str(tmp_path / "kept"), "image")
    window = Window(ahead=PIECE, store=store)
    slow = window.join(0)
    assert slow is not None
    filling = threading.Thread(target=fill, args=(window, KEY, [bytes(8 * PIECE)]), daemon=True)
    filling.start()
    promptly(lambda: os.fstat(store._file).st_size == 0 and not (tmp_path / "kept").exists())
    frame = window.next(slow, 0.0)
    assert frame is not None
    assert frame.kind == "X"


def test_a_host_that_cannot_give_its_engine_all_says_so_and_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all would wait for that engine for an hour, and what a shell has started would go on."""
    pid = tmp_path / "pid"
    load = ["sh", "-c", 'sleep 90 > /dev/null 2>&1 & echo $! > "$0"; exec cat', str(pid)]
    relay, said = hand_on.Relay({"key": KEY.hex(), "addr": "", "load": load}), list[dict[str, object]]()

    told = iter("XE")

    def gone(taker: int, wait: float) -> Frame:
        promptly(lambda: pid.exists() and pid.read_text() != "")
        return Frame(next(told), 0, b"", b"")

    monkeypatch.setattr(relay, "tell", lambda **words: said.append(words))
    monkeypatch.setattr(relay.window, "next", gone)
    relay._load()
    assert said == [
        {"loaded": False, "code": -signal.SIGKILL, "said": "no room for what comes before its engine takes it"}
    ]
    promptly(lambda: start_ticks(int(pid.read_text())) is None)


def test_what_a_command_prints_is_read_while_it_runs() -> None:
    """It may warn of each file: one that waits for a reader would read no more of the image."""
    much = "head -c 300000 /dev/zero | tr '\\0' x; echo; echo last"
    with subprocess.Popen(["sh", "-c", much], stdout=subprocess.PIPE) as run:
        words = hand_on.Words(run.stdout)
        assert run.wait(PROMPT) == 0
        assert words.last().splitlines()[-1] == "last"
