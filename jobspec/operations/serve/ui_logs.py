"""Lines of a job's logs, kept while a page looks at them: the last ones, or those that hold a text."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.operations.inspect.as_json import iso, line_json

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.log_lines import Line, Reader
    from jobctl.jobspec.operations.inspect.logs import Choice

MAX_LOG_LINES, MAX_LOG_BYTES = 20_000, 8 << 20  # lines that are kept, and bytes of them
MAX_PAGE_LINES = 1000  # lines that a page gets at once
MAX_LINE_BYTES = 4096  # bytes of a line
TAIL = 500  # lines of each process at most with which a window begins
WINDOWS = 4  # filters whose lines are kept at the same time
SEARCH = 0.5  # seconds that one request searches

Filter = tuple[int | None, int | None, str]  # node, rank and text


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
            while len(self._lines) > MAX_LOG_LINES or (self._bytes > MAX_LOG_BYTES and len(self._lines) > 1):
                self._bytes -= len(self._lines.popleft()[1].text)

    def after(self, number: int) -> dict[str, Any]:
        """Return the last lines after line `number`, and the number of the last line that there is."""
        found = deque[dict[str, Any]]()
        for at, line in reversed(self._lines):
            if at <= number or len(found) == MAX_PAGE_LINES:
                break
            found.appendleft(_shown(line))
        return {"lines": list(found), "last": self._last, "problems": _problems(self._reader), "searched": None}


class LogSearch:
    """The last lines of whole logs that hold a text, numbered likewise. No request waits until all logs are searched."""

    def __init__(self, reader: Reader, text: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader, self._wanted, self._clock = reader, text.encode(), clock
        self._going: Iterator[Line] | None = None
        self._found: deque[tuple[int, dict[str, Any]]] = deque(maxlen=MAX_PAGE_LINES)
        self._last = 0
        self._searched: float | None = None

    def read(self) -> None:
        """Search on for SEARCH seconds, at most to where the logs end now."""
        deadline = self._clock() + SEARCH
        going = self._going or self._reader.lines()
        for count, line in enumerate(going):
            if self._wanted in line.text:
                self._last += 1
                self._found.append((self._last, _shown(line)))
            if count % 256 == 255 and self._clock() >= deadline:
                self._going, self._searched = going, line.time
                return
        self._going = self._searched = None

    def after(self, number: int) -> dict[str, Any]:
        """Return the last lines after line `number`; `searched` is up to when logs are searched, None for all of them."""
        lines = [line for at, line in self._found if at > number]
        return {
            "lines": lines,
            "last": self._last,
            "problems": _problems(self._reader),
            "searched": None if self._searched is None else iso(self._searched),
        }


def _problems(reader: Reader) -> list[str]:
    return [str(error.message) for error in reader.problems.values()]


def _shown(line: Line) -> dict[str, Any]:
    data = {**line_json(line), "writer": line.writer}
    if len(line.text) > MAX_LINE_BYTES:
        start = line.text[:MAX_LINE_BYTES].decode(errors="replace")
        data["line"] = f"{start}… ({len(line.text) - MAX_LINE_BYTES} more bytes)"
    return data


class LogWindows:
    """The windows of one job, one for each choice of node, rank and text; the one that was asked for longest ago goes first.

    `open_` returns what reads the last lines, `open_whole` what reads all of them, in which a text is searched.
    """

    def __init__(self, open_: Callable[[Choice], Reader], open_whole: Callable[[Choice], Reader]) -> None:
        self._open, self._open_whole = open_, open_whole
        self._windows: OrderedDict[Filter, LogWindow | LogSearch] = OrderedDict()
        self._names: dict[Filter, str] = {}  # unlike any other: of windows before these, and of another server

    def read(self, choice: Choice, text: str, since: str) -> dict[str, Any]:
        """Return the lines that a page lacks. `since` is what the last answer named `at`; after any other text the page gets all.

        Raises Refused for a node that never was.
        """
        key = choice.node, choice.rank, text
        window = self._windows.pop(key, None)
        if window is None:
            window = LogSearch(self._open_whole(choice), text) if text else LogWindow(self._open(choice))
            self._names[key] = token_hex(8)
        self._windows[key] = window
        while len(self._windows) > WINDOWS:
            del self._names[self._windows.popitem(last=False)[0]]
        window.read()
        name, _, number = since.partition(":")
        same = name == self._names[key] and number.isdecimal()
        found: Mapping[str, Any] = window.after(int(number) if same else 0)
        return {
            "lines": found["lines"],
            "problems": found["problems"],
            "searched": found["searched"],
            "more": same,
            "at": f"{self._names[key]}:{found['last']}",
        }
