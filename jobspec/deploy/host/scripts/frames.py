"""An archive on its way between hosts, in frames; the other programs of hosts that hand it on are joined to this one.

A frame is a line of text (kind, place in the archive, size, SHA-256, and an HMAC of these) and its content. Nothing that does
not bear the key's mark gets to an engine.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import IO, NamedTuple

PIECE = 1 << 20  # bytes of a frame
AHEAD = 16 * PIECE  # bytes that wait for the slowest of those that take them
KEPT = 96 * PIECE  # bytes that are kept for a host whose source has gone
BEAT = 1.0  # seconds after which a side that has nothing to send says so


class Frame(NamedTuple):
    """A part of the archive (kind D), its end (E), an order (C), `still there` (K) or `not any more` (X)."""

    kind: str
    at: int
    body: bytes
    head: bytes  # the line before the body


class Unmarked(Exception):
    """What came does not bear the key's mark."""


def proof(key: bytes, words: str) -> str:
    """Return the mark of some words."""
    return hmac.new(key, words.encode(), "sha256").hexdigest()


def sealed(key: bytes, kind: str, at: int, body: bytes = b"") -> Frame:
    """Return a frame."""
    words = f"{kind} {at} {len(body)} {hashlib.sha256(body).hexdigest()}"
    return Frame(kind, at, body, f"{words} {proof(key, words)}\n".encode())


def receive(key: bytes, stream: IO[bytes]) -> Frame:
    """Return the next frame. Raises EOFError at the end, Unmarked where it is nobody's who has the key."""
    line = stream.readline(400)
    words, _, mark = line.decode("ascii", "replace").rstrip("\n").rpartition(" ")
    if not line.endswith(b"\n"):
        raise EOFError
    if not hmac.compare_digest(mark.encode(), proof(key, words).encode()):
        raise Unmarked("what comes is not marked as it should be")
    kind, at, size, digest = words.split(" ")
    body = stream.read(int(size))
    if len(body) < int(size):
        raise EOFError
    if hashlib.sha256(body).hexdigest() != digest:
        raise Unmarked("what comes is not what was sent")
    return Frame(kind, int(at), body, line)


class Window:
    """The part of an archive that has come last. For several threads: one puts frames in, others take them.

    It waits for the slowest of those that take them. Where there is none, it `waits` for one, or for nobody.
    """

    def __init__(self, *, waits: bool = False, ahead: int = AHEAD, kept: int = KEPT) -> None:
        self._waits, self._ahead, self._kept = waits, ahead, kept
        self._changed = threading.Condition()
        self._frames: deque[Frame] = deque()
        self._takers: dict[int, int] = {}  # how far each is
        self._furthest = 0  # that any of them has got
        self._last = 0
        self._closed = False
        self.end = 0  # bytes that have come
        self.over = False  # nothing comes after them

    def put(self, frame: Frame) -> None:
        """Add what comes next; wait for those that take it. A frame that it has already is left out. Raises EOFError if closed."""
        with self._changed:
            while not self._closed and self._is_full():
                self._changed.wait()
            if self._closed:
                raise EOFError
            if self.over or frame.at != self.end:
                return
            self._frames.append(frame)
            self.end += len(frame.body)
            self.over = frame.kind == "E"
            self._forget()
            self._changed.notify_all()

    def _is_full(self) -> bool:
        nobody = self._furthest if self._waits else self.end
        return self.end - min(self._takers.values(), default=nobody) >= self._ahead

    def is_stuck(self, taker: int | None) -> bool:
        """Say whether this one is so far behind that all others wait for it."""
        with self._changed:
            return self.end - self._takers.get(taker or 0, self.end) >= self._ahead

    def _forget(self) -> None:
        needed = min([self.end - self._kept, *self._takers.values()])
        while self._frames and self._frames[0].at + len(self._frames[0].body) < needed:
            self._frames.popleft()

    def join(self, at: int) -> int | None:
        """Return the number of one more that takes frames, from `at` on; None where these have gone, or not come yet."""
        with self._changed:
            if at > self.end or at < (self._frames[0].at if self._frames else self.end):
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
            frame = next(one for one in self._frames if one.at >= at)
            self._takers[taker] = frame.at + len(frame.body)
            self._furthest = max(self._furthest, self._takers[taker])
            self._changed.notify_all()
            return frame

    def close(self) -> None:
        """Take no more frames."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def fill(window: Window, key: bytes, pieces: Iterable[bytes]) -> None:
    """Put an archive into a window, in frames of about the same size."""
    at, parts, size = 0, [], 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size >= PIECE:
            window.put(sealed(key, "D", at, b"".join(parts)))
            at, parts, size = at + size, [], 0
    if parts:
        window.put(sealed(key, "D", at, b"".join(parts)))
    window.put(sealed(key, "E", at + size))


def feed(window: Window, key: bytes, at: int, send: Callable[[Frame], None]) -> None:
    """Send all from `at` on to one that takes it. What `send` raises, is raised."""
    taker = window.join(at)
    if taker is None:
        send(sealed(key, "X", at))
        return
    try:
        while True:
            frame = window.next(taker, BEAT)
            send(frame or sealed(key, "K", window.end))
            if frame is not None and frame.kind == "E":
                return
    finally:
        window.leave(taker)
