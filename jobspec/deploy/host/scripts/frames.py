"""An archive on its way between hosts, in frames; the other programs of hosts that hand it on are joined to this one.

A frame is a line of text (kind, place in the archive, size, SHA-256, and an HMAC of these) and its content. Nothing that does
not bear the key's mark gets to an engine. All but the last one have the same size, so that a piece has the same place in
each transfer. A host that has kept a piece of an earlier transfer gets its SHA-256 only.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import IO, NamedTuple

from jobctl.jobspec.deploy.host.scripts.kept import KeptArchive

PIECE = 1 << 18  # bytes of a frame, which a host hands on once it has all of it: each host adds the time of one
MAX_WAITING_BYTES = 16 << 20  # bytes that wait for the slowest of those that take them
MAX_KEPT_BYTES = 96 << 20  # bytes that are kept for a host whose source has gone
FRAME_HEARTBEAT_INTERVAL = 1.0  # seconds after which a side that has nothing to send says so


class Frame(NamedTuple):
    """A part of the archive (kind D; S: which the other side has kept), its end (E), an order (C), `still there` (K) or `gone` (X)."""

    kind: str
    at: int
    body: bytes
    head: bytes  # the line before the body

    @property
    def size(self) -> int:
        """How many bytes of the archive this part is."""
        return int(self.head.split(b" ")[2])

    @property
    def digest(self) -> str:
        """The SHA-256 of the content."""
        return self.head.split(b" ")[3].decode()


class Unmarked(Exception):
    """What came does not bear the key's mark."""


def proof(key: bytes, words: str) -> str:
    """Return the mark of some words."""
    return hmac.new(key, words.encode(), "sha256").hexdigest()


def sealed(key: bytes, kind: str, at: int, body: bytes = b"") -> Frame:
    """Return a frame."""
    words = f"{kind} {at} {len(body)} {hashlib.sha256(body).hexdigest()}"
    return Frame(kind, at, body, f"{words} {proof(key, words)}\n".encode())


def same(key: bytes, frame: Frame) -> Frame:
    """Return the frame for one that has kept the content of `frame`."""
    words = f"S {frame.at} {frame.size} {frame.digest}"
    return Frame("S", frame.at, b"", f"{words} {proof(key, words)}\n".encode())


def receive(key: bytes, stream: IO[bytes]) -> Frame:
    """Return the next frame. Raises EOFError at the end, Unmarked where it is nobody's who has the key."""
    line = stream.readline(400)
    words, _, mark = line.decode("ascii", "replace").rstrip("\n").rpartition(" ")
    if not line.endswith(b"\n"):
        raise EOFError
    if not hmac.compare_digest(mark.encode(), proof(key, words).encode()):
        raise Unmarked("what comes is not marked as it should be")
    kind, at, size, digest = words.split(" ")
    if kind == "S":
        return Frame(kind, int(at), b"", line)
    body = stream.read(int(size))
    if len(body) < int(size):
        raise EOFError
    if hashlib.sha256(body).hexdigest() != digest:
        raise Unmarked("what comes is not what was sent")
    return Frame(kind, int(at), body, line)


class Window:
    """The part of an archive that has come last. For several threads: one puts frames in, others take them.

    It waits for the slowest of those that take them. Where there is none, it `waits` for one, or for nobody. With a file
    (`store`) it waits for nobody, and has all that has come.
    """

    def __init__(
        self,
        *,
        waits: bool = False,
        ahead: int = MAX_WAITING_BYTES,
        kept: int = MAX_KEPT_BYTES,
        store: KeptArchive | None = None,
    ) -> None:
        self._waits, self._ahead, self._kept, self._store = waits, ahead, kept if store is None else ahead, store
        self._stored: list[Frame] = []  # those in the file, without their content
        self._changed = threading.Condition()
        self._frames: deque[Frame] = deque()
        self._takers: dict[int, int] = {}  # how far each is
        self._furthest = 0  # that any of them has got
        self._last = 0
        self._closed = False
        self.end = 0  # bytes that have come
        self.over = False  # nothing comes after them

    def put(self, frame: Frame, *, kept: bool = False) -> None:
        """Add what comes next; wait for those that take it. A frame that it has already is left out. Raises EOFError if closed.

        `kept`: it is in the file already.
        """
        if self._store is not None and not kept and frame.at == self.end and not self.over:
            self._write(self._store, frame)
        with self._changed:
            while not self._closed and self._is_full():
                self._changed.wait()
            if self._closed:
                raise EOFError
            if self.over or frame.at != self.end:
                return
            self._frames.append(frame)
            if self._store is not None:
                self._stored.append(frame._replace(body=b""))
            self.end += len(frame.body)
            self.over = frame.kind == "E"
            self._forget()
            self._changed.notify_all()

    def _write(self, store: KeptArchive, frame: Frame) -> None:
        """Write a frame into the file. Where the disk is full, go on without it."""
        try:
            store.write(frame.at, frame.body)
        except OSError:
            store.empty()
            with self._changed:
                self._store, self._stored = None, []

    def _is_full(self) -> bool:
        if self._store is not None:
            return False
        nobody = self._furthest if self._waits else self.end
        return self.end - min(self._takers.values(), default=nobody) >= self._ahead

    def is_stuck(self, taker: int | None) -> bool:
        """Say whether this one is so far behind that all others wait for it."""
        with self._changed:
            return self.end - self._takers.get(taker or 0, self.end) >= self._ahead

    def _forget(self) -> None:
        needed = min([self.end - self._kept, *(() if self._store is not None else self._takers.values())])
        while self._frames and self._frames[0].at + len(self._frames[0].body) < needed:
            self._frames.popleft()

    def join(self, at: int) -> int | None:
        """Return the number of one more that takes frames, from `at` on; None where these have gone, or cannot come any more."""
        with self._changed:
            oldest = next(iter(self._stored or self._frames), None)
            if at < (self.end if oldest is None else oldest.at) or (at > self.end and self.over):
                return None
            self._last += 1
            self._takers[self._last] = at
            return self._last

    def leave(self, taker: int | None) -> None:
        """Wait for this one no longer."""
        with self._changed:
            self._takers.pop(taker or 0, None)
            self._changed.notify_all()

    def next(self, taker: int, wait: float) -> Frame | None:
        """Return what comes next for `taker`, None if that does not come within `wait` seconds."""
        with self._changed:
            at = self._takers[taker]
            if not self._changed.wait_for(lambda: self.end > at or self.over, wait):
                return None
            frame = self._frame(at)
            if frame is None:
                return Frame("X", at, b"", b"")
            self._takers[taker] = frame.at + frame.size
            self._furthest = max(self._furthest, self._takers[taker])
            self._changed.notify_all()
            store = self._store
        if frame.size and not frame.body and store is not None:
            body = store.read(frame.at, frame.size)
            return frame._replace(body=body) if len(body) == frame.size else Frame("X", at, b"", b"")
        return frame

    def _frame(self, at: int) -> Frame | None:
        """Return the frame at a place, without its content where that is in the file only; None if it has gone."""
        if self._frames and self._frames[0].at <= at:
            return next((one for one in self._frames if one.at >= at), None)
        place = -(-at // PIECE)
        return self._stored[place] if place < len(self._stored) else None

    def close(self) -> None:
        """Take no more frames."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def fill(window: Window, key: bytes, pieces: Iterable[bytes]) -> None:
    """Put an archive into a window, in frames of the same size."""
    at, held = 0, bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= PIECE:
            window.put(sealed(key, "D", at, bytes(held[:PIECE])))
            at += PIECE
            del held[:PIECE]
    if held:
        window.put(sealed(key, "D", at, bytes(held)))
    window.put(sealed(key, "E", at + len(held)))


def feed(window: Window, key: bytes, at: int, send: Callable[[Frame], None], have: Sequence[bytes] = ()) -> None:
    """Send all from `at` on to one that takes it; no content of pieces of which it has the SHA-256, in `have` from `at` on.

    What `send` raises, is raised.
    """
    taker = window.join(at)
    if taker is None:
        send(sealed(key, "X", at))
        return
    try:
        while True:
            frame = window.next(taker, FRAME_HEARTBEAT_INTERVAL)
            if frame is None:
                send(sealed(key, "K", window.end))
                continue
            if frame.kind == "X":
                send(sealed(key, "X", frame.at))
                return
            place, odd = divmod(frame.at - at, PIECE)
            is_there = not odd and place < len(have) and have[place].hex() == frame.digest
            send(same(key, frame) if is_there and frame.kind == "D" else frame)
            if frame.kind == "E":
                return
    finally:
        window.leave(taker)
