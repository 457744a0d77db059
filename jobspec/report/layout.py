"""The layout of the page of a report, and how times and parts are written. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from jobctl.jobspec.launcher.telling.words import in_words
from jobctl.jobspec.records import dataclass

MAX_LINE_CHARS = 2000  # characters of a line that anyone wrote


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a time lies, in percent of the run."""

    begin: float
    end: float

    def at(self, at: float) -> float:
        """Return where a time lies."""
        return round(min(100.0, max(0.0, 100 * (at - self.begin) / (self.end - self.begin))), 3)

    def width(self, begin: float, end: float) -> float:
        """Return how much of the run lies between two times."""
        return round(self.at(end) - self.at(begin), 3)


@dataclass(frozen=True, slots=True)
class RunClock:
    """Times as text: of day, and since the run began."""

    begin: float
    zone: tzinfo | None

    def day(self, at: float) -> str:
        """Return a time with its date and zone."""
        return f"{self._of(at):%Y-%m-%d %H:%M:%S %Z}".strip()

    def time(self, at: float) -> str:
        """Return a time of day, with the date where that is not the day on which the run began."""
        same = self._of(at).date() == self._of(self.begin).date()
        return f"{self._of(at):%H:%M:%S}" if same else f"{self._of(at):%m-%d %H:%M:%S}"

    def since(self, at: float) -> str:
        """Return how long after the beginning of the run a time was: `+3 min 5 s`."""
        return f"+{in_words(at - self.begin)}"

    def _of(self, at: float) -> datetime:
        try:
            return datetime.fromtimestamp(at, UTC).astimezone(self.zone)
        except (OverflowError, ValueError, OSError):  # no time that a calendar has
            return datetime.fromtimestamp(0, UTC)


def percent(part: float) -> str:
    """Return a part of 1 as text; only what is all of it is called 100 %."""
    text = f"{100 * part:.1f}"
    return f"{'99.9' if text == '100.0' and part < 1 else text.removesuffix('.0')} %"


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at a point of an axis, in percent, with its label; a minor one goes where there is little room."""

    at: float
    label: str
    minor: bool = False


_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def ticks(scale: Scale) -> tuple[Mark, ...]:
    """Return the marks of the axis of time: at most nine, at round distances."""
    length = scale.end - scale.begin
    step = next((step for step in _STEPS if length / step <= 8), 86400 * max(1, -(-length // (8 * 86400))))
    times = [step * number for number in range(int(length // step) + 1)]
    return tuple(
        Mark(scale.at(scale.begin + at), in_words(at) if at else "0", bool(number % 2))
        for number, at in enumerate(times)
    )


def cut(text: str) -> str:
    """Return a text without what is longer than a page should show."""
    return (
        text
        if len(text) <= MAX_LINE_CHARS
        else f"{text[:MAX_LINE_CHARS]} … ({len(text) - MAX_LINE_CHARS} more characters)"
    )
