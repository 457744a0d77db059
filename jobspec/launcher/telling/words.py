"""What happened to a job in words: what launchers have kept has fields only. Pure, and one for all who tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Dict

    from jobctl.jobspec.launcher.system.files import Json

LATEST = 32503680000.0  # the year 3000, in seconds since the epoch: later times cannot be printed everywhere
UNITS_OF_TIME = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def counted(count: int, what: str) -> str:
    """Return a number of things as a person reads it: `1 node`, `2 nodes`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def in_words(seconds: float) -> str:
    """Return seconds as a person reads them, in two units at most: `0.4 s`, `48 s`, `3 min 5 s`, `2 d 4 h`."""
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    large, unit = next((size, unit) for size, unit in UNITS_OF_TIME if whole >= size)
    small = next(((size, unit) for size, unit in UNITS_OF_TIME if size < large), None)
    text = f"{whole // large} {unit}"
    rest = whole % large // small[0] if small else 0
    return f"{text} {rest} {small[1]}" if small and rest else text


def megabytes(size: float) -> str:
    """Return a number of bytes for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def slowness(rank: int, seconds: float, median: float) -> str:
    """Say how slow a process is; `median` is not 0."""
    share = f"{seconds / median:.1f} times the median"
    return f"rank {rank} needs {seconds:.3g} s for its part of each step, {share} ({median:.3g} s)"


def id_of(began: float, key: str) -> str:
    """Return the id of an event of a job that was brought up at that time; `key`: see `key_of`."""
    return f"{began!r} {key}"


def _node(of: Json) -> str:
    where, state = f"node {of.get('node')} on {of.get('host')}", of.get("state")
    if state == "running":
        return f"{where} runs generation {of.get('generation')}"
    if state == "exited":
        code = of.get("exit_code")
        return f"{where} " + ("was stopped" if code is None else f"ended with code {code}")
    if state == "fenced":
        return f"{where}: {of.get('reason')}"
    return f"node {of.get('node')}: {of.get('reason')} (generation {of.get('generation')})"


def _begun(of: Json) -> str:
    way = "from standby" if of.get("standby") else f"cold: {of.get('cold_because')}"
    return f"generation {of.get('generation')} was started {way}"


def _slowness(of: Json) -> str:
    rank, seconds, median = of.get("rank"), of.get("seconds"), of.get("median")
    return f": {slowness(rank, seconds, median)}" if rank is not None and seconds and median else ""


def _begins(of: Json) -> str:
    return f"generation {of.get('generation')} begins" + (f": {of['cause']}" if of.get("cause") else "")


EVENT_WORDS: Dict[str, Callable[[Json], str]] = {
    "node": _node,
    "generation": _begins,
    "generation-begun": _begun,
    "failure": lambda of: f"node {of.get('node')}: {of.get('reason')}; the launchers decided",
    "failed": lambda of: f"job failed: {of.get('reason')}",
    "succeeded": lambda of: f"job succeeded: {of.get('reason')}",
    "moved": lambda of: f"node {of.get('node')} was moved from {of.get('from')} to {of.get('host')} by launchers",
    "waiting": lambda of: f"a launcher {of.get('reason')}",
    "straggler": lambda of: f"node {of.get('node')} on {of.get('host')} is a straggler{_slowness(of)}",
    "process-restarted": lambda of: (
        f"node {of.get('node')}: {of.get('reason')}; it was started again while the others went on"
    ),
    "told": lambda of: f"no supervisor was there: launchers have told {of.get('channel')} of `{of.get('what')}`",
}
