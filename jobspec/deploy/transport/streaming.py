"""What a command prints while it runs, in pieces, for as long as something comes."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

from jobctl.jobspec.deploy.transport.base import RunningCommand

_AHEAD = 64  # pieces that are read before somebody has taken them
_POLL_INTERVAL = 0.5  # seconds between two looks whether anybody still takes them


def streamed(command: RunningCommand, stdin: bytes, patience: float) -> Iterator[bytes]:
    """Yield what a command prints, which reads `stdin` meanwhile.

    Raises TimeoutError if nothing comes for `patience` seconds, OSError or EOFError if the connection is lost.
    """
    pieces = _Pieces(command, stdin)
    # Threads of their own: a channel whose link is dead says nothing, and a command may print before it has read all.
    for task in (pieces.write, pieces.read):
        threading.Thread(target=task, daemon=True, name="stream").start()
    try:
        while piece := pieces.next(patience):
            yield piece
    finally:
        pieces.over.set()


class _Pieces:
    def __init__(self, command: RunningCommand, stdin: bytes) -> None:
        self.command, self.stdin = command, stdin
        self.over = threading.Event()  # nobody takes pieces any more
        self._queue: queue.Queue[bytes | Exception] = queue.Queue(_AHEAD)

    def write(self) -> None:
        """Write the input of the command."""
        with contextlib.suppress(OSError, EOFError):  # it has ended, which its exit code tells
            self.command.send(self.stdin)
            self.command.end_input()

    def read(self) -> None:
        """Read the output of the command."""
        try:
            while self._put(piece := self.command.output()) and piece:
                pass
        except Exception as error:
            self._put(error)

    def _put(self, piece: bytes | Exception) -> bool:
        """Hand a piece on; say whether somebody is there for it."""
        while not self.over.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(piece, timeout=_POLL_INTERVAL)
                return True
        return False

    def next(self, patience: float) -> bytes:
        """Return the next piece, nothing at the end."""
        try:
            piece = self._queue.get(timeout=patience)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(piece, Exception):
            raise piece
        return piece
