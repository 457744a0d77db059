"""Hands an image on from host to host while it arrives: it runs on each host that has the image or gets it.

It reads one line of JSON on its input: the key that all hosts of this transfer share, the address to listen at, and either a
command that saves the image (`save`, with the layers to leave out in `without`), or one that loads it (`load`; `before`, in
hex, comes first in its input). Where `without` is null, `save` prints any bytes, and reads those of `given`, in hex. Then it
reads frames: orders, and the archive where it comes from the user's machine. Where `save` is null, the rest of its input is
the saved image. It prints a JSON object a line: `port`, then once in a while how far it is. It ends with its input, when it is told to, or when nobody needs it any more. One that loads an image of about
`size` bytes keeps what has come in a file (kept.py), if `keep` says in which folder and by what name, until its engine has
all.

The key is never sent between hosts: who asks for the archive proves to have it. Every frame (frames.py) bears its mark.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, NoReturn

from jobctl.jobspec.deploy.host.scripts.frames import (
    FRAME_HEARTBEAT_INTERVAL,
    PIECE,
    Frame,
    Unmarked,
    Window,
    feed,
    fill,
    proof,
    receive,
    sealed,
)
from jobctl.jobspec.deploy.host.scripts.kept import KeptArchive
from jobctl.jobspec.deploy.host.scripts.saved_image import without_layers

STALL = 8.0  # seconds of silence after which the other side is given up
REACH = 5.0  # seconds in which a host is reached, or cannot be
HANGS = 30.0  # seconds in which an engine takes nothing, after which others do not wait for it
HANGS_ALONE = 300.0  # the same, where others do not wait: an engine may unpack much without a word
LOCKED = 10.0  # seconds in which a program of an earlier transfer, which was cut off, lets go of the file
MANY = 1 << 22  # pieces of an archive
ORPHAN_TIMEOUT = 120.0  # seconds without an order or a byte after which it ends
SPEAKS = 3  # beats after which it says again how far it is, if that is nothing new


class Relay:
    """One host's part in a transfer."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order, self.key = order, bytes.fromhex(order["key"])
        self.kept = kept(order)
        self.have: list[bytes] = []  # the SHA-256 of pieces of an earlier transfer
        self.window = Window(waits="load" not in order, store=self.kept)
        self.got = 0  # bytes of the archive that have come over the network
        self.heard = time.monotonic()
        self._link: socket.socket | None = None
        self._turn = 0  # how often it was told where to take the archive from
        self._tells = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._loads: int | None = None  # the engine's number among those that take frames
        self._took = time.monotonic()  # when the engine took something, or had nothing to take
        self._ends = threading.Event()
        self._told: dict[str, object] = {}  # how far it was when it said so last
        self._unsaid = 0  # beats since then

    def tell(self, **words: object) -> None:
        """Print something; end if nobody reads it."""
        with self._tells:
            try:
                os.write(1, json.dumps(words).encode() + b"\n")
            except OSError:
                self.end()

    def end(self) -> NoReturn:
        """End at once, with what this has started."""
        self._kill()
        os._exit(0)

    def _kill(self) -> bool:
        """End what this has started, with all that it has started: a shell's `tar` would go on. False: it may not, as with sudo."""
        try:
            if self._child is not None and self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)
        except OSError:
            return False
        return True

    def run(self) -> None:
        """Take part to the end."""
        listener = listen(self.order["addr"])
        self._look()
        self.tell(port=listener.getsockname()[1], have=b"".join(self.have).hex())
        work = self._load if "load" in self.order else self._save if self.order["save"] else self._read
        for task in (
            lambda: self._serve(listener),
            lambda: self._work(work),
            *([] if work == self._read else [self._follow]),
        ):
            threading.Thread(target=task, daemon=True).start()
        while not self._ends.wait(FRAME_HEARTBEAT_INTERVAL):
            self._speak()
            if time.monotonic() - self.heard > ORPHAN_TIMEOUT:
                self.end()
            if not self.window.is_stuck(self._loads):
                self._took = time.monotonic()
            elif time.monotonic() - self._took > (HANGS if self.kept is None else HANGS_ALONE) and not self._kill():
                self.end()
        self.end()

    def _speak(self) -> None:
        """Say how far it is. Each word costs the user's machine an answer, so what is not new is not said at each beat."""
        now: dict[str, object] = {"at": self.window.end, "over": self.window.over, "got": self.got}
        self._unsaid += 1
        if now != self._told or self._unsaid == SPEAKS:
            self._told, self._unsaid = now, 0
            self.tell(**now)

    def _look(self) -> None:
        """Look at what an earlier transfer has left."""
        told = time.monotonic()
        for digest in self.kept.digests(PIECE) if self.kept is not None else ():
            self.have.append(digest)
            if time.monotonic() - told > FRAME_HEARTBEAT_INTERVAL:
                told = time.monotonic()
                self.tell(looked=len(self.have))

    # What the engine does.

    def _work(self, task: Callable[[], None]) -> None:
        try:
            task()
        except (OSError, tarfile.TarError, EOFError) as error:
            self.tell(failed=str(error) or type(error).__name__)

    def _save(self) -> None:
        """Read the archive from the engine."""
        with tempfile.TemporaryFile() as given:
            given.write(bytes.fromhex(self.order.get("given", "")))
            given.seek(0)
            child = self._begin(self.order["save"], given, subprocess.PIPE)
        assert child.stdout is not None
        said = Words(child.stderr)
        try:
            self._fill(child.stdout, lambda: child.wait() == 0)
        except (tarfile.TarError, EOFError) as error:
            self._kill()
            raise OSError(said.last() or str(error)) from error

    def _read(self) -> None:
        """Read the archive from the input."""
        self._fill(sys.stdin.buffer, lambda: True)

    def _fill(self, stream: IO[bytes], is_whole: Callable[[], bool]) -> None:
        saved, without = whole(stream, is_whole), self.order["without"]
        if without is not None:
            saved = without_layers(saved, frozenset(without))
        fill(self.window, self.key, (self._hear(piece) for piece in saved))

    def _hear(self, piece: bytes) -> bytes:
        self.heard = time.monotonic()
        return piece

    def _load(self) -> None:
        """Give the archive to the engine. Where that takes no more, this one still hands it on."""
        self._loads = taker = self.window.join(0)
        assert taker is not None
        child = self._begin(self.order["load"], subprocess.PIPE, subprocess.STDOUT)
        assert child.stdin is not None
        words, gone = Words(child.stdout), False
        try:
            child.stdin.write(bytes.fromhex(self.order.get("before", "")))
            while True:
                frame = self.window.next(taker, FRAME_HEARTBEAT_INTERVAL)
                gone = frame is not None and frame.kind == "X"
                if gone:
                    self._kill()
                if gone or (frame is not None and frame.kind == "E"):
                    break
                if frame is not None:
                    child.stdin.write(frame.body)
                    self._took = time.monotonic()
        except BrokenPipeError:
            pass
        finally:
            self.window.leave(taker)
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        said, code = words.last(), child.wait()
        if self.kept is not None and (code == 0 or "no space" in said):
            self.kept.remove()
        why = "no room for what comes before its engine takes it" if gone else "its engine takes nothing"
        self.tell(loaded=code == 0 and not gone, code=code, said=said if code >= 0 and not gone else why)

    def _begin(self, argv: list[str], stdin: Any, stderr: int) -> subprocess.Popen[bytes]:
        """Start a command, as the first of a group of its own."""
        self._child = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
        return self._child

    # Where it comes from.

    def _follow(self) -> None:
        """Read orders, and the archive if it comes this way."""
        stream = sys.stdin.buffer
        with contextlib.suppress(EOFError, Unmarked, OSError):
            while True:
                frame = receive(self.key, stream)
                self.heard = time.monotonic()
                if frame.kind in "DES":
                    self._put(frame)
                elif frame.kind == "X":
                    self.tell(lost="that place of the archive is gone", source="")
                elif frame.kind == "C":
                    self._obey(json.loads(frame.body))
        self.end()

    def _obey(self, order: dict[str, Any]) -> None:
        if "end" in order:
            self._ends.set()
        if "from" in order:
            self._turn += 1
            if self._link is not None:
                with contextlib.suppress(OSError):
                    self._link.shutdown(socket.SHUT_RDWR)
            host, port = order["from"]
            threading.Thread(target=self._take, args=(host, port, order["name"], self._turn), daemon=True).start()

    def _take(self, host: str, port: int, name: str, turn: int) -> None:
        """Take the archive from another host, until it was told to take it from yet another one."""
        try:
            with socket.create_connection((host, port), REACH) as link:
                if turn == self._turn:
                    self._link = link
                    self._take_all(link, turn)
        except (OSError, EOFError, Unmarked, ValueError) as error:
            if turn == self._turn and not self.window.over:
                self.tell(lost=str(error) or "it has hung up", source=name)

    def _take_all(self, link: socket.socket, turn: int) -> None:
        link.settimeout(STALL)
        stream: IO[bytes] = link.makefile("rb", PIECE)  # type: ignore[assignment]  # as the stubs have it, not IO
        with stream:
            self._greet(link, stream)
            threading.Thread(target=self._live, args=(link, turn), daemon=True).start()
            while turn == self._turn and not self.window.over:
                frame = receive(self.key, stream)
                self.heard = time.monotonic()
                if frame.kind == "X":
                    raise Unmarked("it has that place of the archive no more")
                if frame.kind in "DES":
                    self._put(frame)

    def _put(self, frame: Frame) -> None:
        """Take a frame; the content of one that was kept is here."""
        if frame.kind != "S":
            self.got += len(frame.body)
            self.window.put(frame)
        elif frame.at == self.window.end and not self.window.over:
            there = sealed(self.key, "D", frame.at, self.kept.read(frame.at, frame.size) if self.kept else b"")
            if there.digest != frame.digest:
                self.have = []
                raise Unmarked("what was kept of it has changed")
            self.window.put(there, kept=True)

    def _live(self, link: socket.socket, turn: int) -> None:
        """Tell the one that it takes the archive from that it lives, also while it takes nothing."""
        with contextlib.suppress(OSError):
            while turn == self._turn and not self.window.over:
                link.sendall(b".")
                time.sleep(FRAME_HEARTBEAT_INTERVAL)

    def _greet(self, link: socket.socket, stream: IO[bytes]) -> None:
        nonce = stream.readline(200).decode("ascii", "replace").strip()
        at = self.window.end
        have = b"".join(self.have[at // PIECE :])
        words = f"{at} {len(have) // 32} {hashlib.sha256(have).hexdigest()}"
        link.sendall(f"{words} {proof(self.key, f'get {nonce} {words}')}\n".encode() + have)

    # Where it goes to.

    def _serve(self, listener: socket.socket) -> None:
        while True:
            link, _ = listener.accept()
            threading.Thread(target=self._give, args=(link,), daemon=True).start()

    def _give(self, link: socket.socket) -> None:
        """Give the archive to one that proves to have the key."""
        with contextlib.suppress(OSError, ValueError), link:
            link.settimeout(STALL)
            nonce = os.urandom(16).hex()
            link.sendall(f"{nonce}\n".encode())
            with link.makefile("rb") as stream:
                words, _, mark = stream.readline(300).decode("ascii", "replace").rstrip("\n").rpartition(" ")
                if not hmac.compare_digest(mark.encode(), proof(self.key, f"get {nonce} {words}").encode()):
                    return
                at, count, _ = words.split(" ")
                told = stream.read(32 * min(int(count), MANY))
            link.settimeout(None)
            watching = threading.Thread(target=self._watch, args=(link,), daemon=True)
            watching.start()

            def send(frame: Frame) -> None:
                link.sendall(frame.head + frame.body)
                self.heard = time.monotonic()

            feed(self.window, self.key, int(at), send, [told[one : one + 32] for one in range(0, len(told), 32)])
            watching.join()  # to close it before the other side does would throw away what is on its way

    def _watch(self, link: socket.socket) -> None:
        """Hang up on one that does not say that it lives."""
        with contextlib.suppress(OSError, ValueError):
            while select.select([link], [], [], STALL)[0] and link.recv(4096):
                pass
            link.shutdown(socket.SHUT_RDWR)


class Words(threading.Thread):
    """Reads what a command prints: one that nobody reads waits as soon as a pipe is full."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        assert stream is not None
        self._stream, self._last = stream, b""
        self.start()

    def run(self) -> None:
        """Read to the end."""
        while piece := os.read(self._stream.fileno(), PIECE):
            self._last = (self._last + piece)[-1000:]

    def last(self) -> str:
        """Return what it printed last, once it prints no more."""
        self.join()
        return self._last.decode("utf-8", "replace").strip()


def whole(stream: IO[bytes], is_whole: Callable[[], bool]) -> Iterator[bytes]:
    """Yield all of a stream. Raises EOFError at its end if it is not whole."""
    yield from iter(lambda: stream.read(PIECE), b"")
    if not is_whole():
        raise EOFError("it broke off")


def kept(order: dict[str, Any]) -> KeptArchive | None:
    """Return the file for what comes, None where nothing is to be kept, or cannot be."""
    if not order.get("keep"):
        return None
    deadline = time.monotonic() + LOCKED
    while True:
        try:
            made = KeptArchive(*order["keep"])
        except BlockingIOError:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.2)
        except OSError:
            return None
        else:
            if made.has_room(order.get("size", 0)):
                return made
            made.remove()
            return None


def listen(address: str) -> socket.socket:
    """Return a socket that listens at an address, or at all where the host takes its own name for its loopback."""
    family, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    if place[0] != address and (str(place[0]).startswith("127.") or place[0] == "::1"):
        place = ("", 0)
    made = socket.socket(family, socket.SOCK_STREAM)
    made.bind(place)
    made.listen(16)
    return made


if __name__ == "__main__":
    Relay(json.loads(sys.stdin.buffer.readline())).run()
