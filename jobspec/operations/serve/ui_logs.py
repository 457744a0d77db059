"""The last lines of a job's logs, kept while a page looks at them: it gets only those that it does not have yet."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.operations.inspect.as_json import line_json

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.log_lines import Line, Reader
    from jobctl.jobspec.operations.inspect.logs import Choice

KEPT, BYTES = 20_000, 8 << 20  # lines that are kept, and bytes of them
SHOWN = 1000  # lines that a page gets at once
LONGEST = 4096  # bytes of a line
TAIL = 500  # lines of each process at most with which a window begins
WINDOWS = 4  # filters whose lines are kept at the same time


class LogWindow:
    """The last lines of some logs, numbered from 1 in the order in which they came."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lines: deque[tuple[int, Line]] = deque()
        self._bytes, self._last = 0, 0

    def read(self) -> None:
        """Take what was written since the last call."""
        for line in self._reader.lines():
            self._last += 1
            self._lines.append((self._last, line))
            self._bytes += len(line.text)
            while len(self._lines) > KEPT or (self._bytes > BYTES and len(self._lines) > 1):
                self._bytes -= len(self._lines.popleft()[1].text)

    def after(self, number: int, text: str) -> dict[str, Any]:
        """Return the last lines after line `number` that hold `text`, and the number of the last line that there is."""
        wanted, found = text.encode(), deque[dict[str, Any]]()
        for at, line in reversed(self._lines):
            if at <= number or len(found) == SHOWN:
                break
            if wanted in line.text:
                found.appendleft(_shown(line))
        problems = [str(error.message) for error in self._reader.problems.values()]
        return {"lines": list(found), "last": self._last, "problems": problems}


def _shown(line: Line) -> dict[str, Any]:
    data = line_json(line)
    if len(line.text) > LONGEST:
        start = line.text[:LONGEST].decode(errors="replace")
        data["line"] = f"{start}… ({len(line.text) - LONGEST} more bytes)"
    return data


class LogWindows:
    """The windows of one job, one for each choice of node and rank; the one that was asked for longest ago goes first."""

    def __init__(self, open_: Callable[[Choice], Reader]) -> None:
        self._open = open_
        self._windows: OrderedDict[tuple[int | None, int | None], LogWindow] = OrderedDict()
        self._made = 0
        self._names: dict[tuple[int | None, int | None], str] = {}

    def read(self, choice: Choice, text: str, since: str) -> dict[str, Any]:
        """Return the lines that a page lacks. `since` is what the last answer named `at`; after any other text the page gets all.

        Raises Refused for a node that never was.
        """
        key = choice.node, choice.rank
        window = self._windows.pop(key, None)
        if window is None:
            window = LogWindow(self._open(choice))
            self._made += 1
            self._names[key] = str(self._made)
        self._windows[key] = window
        while len(self._windows) > WINDOWS:
            del self._names[self._windows.popitem(last=False)[0]]
        window.read()
        name, _, number = since.partition(":")
        same = name == self._names[key] and number.isdecimal()
        found: Mapping[str, Any] = window.after(int(number) if same else 0, text)
        return {
            "lines": found["lines"],
            "problems": found["problems"],
            "more": same,
            "at": f"{self._names[key]}:{found['last']}",
        }
