"""How far a transfer to a host is: bytes, rate, and the time that is left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from jobctl.jobspec.launcher.telling.words import in_words

TOLD = 0.5  # seconds between two words on how far it is
_MEANS = 1.0  # seconds after which a rate says something
_RECENT = 10.0  # seconds over which the rate is measured


class TransferProgress:
    """Counts the bytes of a transfer, and tells how far it is: `title`, then the numbers. `size` is all of its bytes, 0 if not known."""

    def __init__(
        self, tell: Callable[[str], None], title: str, size: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self.title, self._size, self._clock = tell, title, size, clock
        self._done = 0
        self._told = float("-inf")
        self._marks = deque([(clock(), 0)])  # when how many bytes had gone

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield pieces, and count them as they are taken."""
        for piece in pieces:
            yield piece
            self.add(len(piece))

    def add(self, size: int) -> None:
        """Take note of bytes that have gone."""
        self._done += size
        now = self._clock()
        if now - self._told < TOLD:
            return
        self._told = now
        self._marks.append((now, self._done))
        while now - self._marks[0][0] > _RECENT and len(self._marks) > 2:
            self._marks.popleft()
        self._tell(f"{self.title}: {self}")

    def __str__(self) -> str:
        done = min(self._done, self._size or self._done)
        said = f"{done / 1e6:.0f} of {self._size / 1e6:.0f} MB" if self._size else f"{done / 1e6:.0f} MB"
        (begun, before), (now, after) = self._marks[0], self._marks[-1]
        rate = (after - before) / (now - begun) if now - begun >= _MEANS else 0.0
        if not rate:
            return said
        left = f", {in_words(round((self._size - done) / rate))} left" if self._size else ""
        return f"{said}, {rate / 1e6:.0f} MB/s{left}"
