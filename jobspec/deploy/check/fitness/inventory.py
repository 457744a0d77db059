"""What hosts are, compared with each other: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import median_high

from jobctl.jobspec.deploy.check.fitness.device_tools import device_states, driver_errors
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.untrusted import Json, as_text

NUMBER_TOLERANCE = 0.05  # by which numbers may differ: kernels reserve memory as they like
HINT = "the slowest host sets the pace: make them alike, leave it out (`--exclude`), or make it a `spare`"
ERRORS = "reset or replace the device, unless that was done since; or leave the host out (`--exclude`). `dmesg` there says when"
BROKEN = "do not train on it: leave it out (`--exclude`, or `devices=` in the hosts file), reset or replace the device"


def compare(said: Mapping[str, Json]) -> Iterator[Finding]:
    """Yield a finding for each host, from what the probes said of their hosts."""
    items = {host: _items(one) for host, one in said.items()}
    usual = {name: _usual([one[name] for one in items.values() if name in one]) for name in _names(items)}
    for host, mine in items.items():
        broken = list(_broken(said[host]))
        if broken:
            yield Finding(host, "inventory", "error", "; ".join(broken), "differs", BROKEN)
            continue
        other = {name: usual[name] for name, value in mine.items() if _differs(value, usual[name])}
        # The device may have been reset since, which the log does not tell: a warning, and no error.
        errors = driver_errors(as_text(said[host].get("log")) or "")
        if errors:
            yield Finding(host, "inventory", "warning", "; ".join([*errors, *_unlike(mine, other)]), "differs", ERRORS)
            continue
        if not other:
            alone = "nothing to compare with" if len(items) < 2 else "like the others"
            yield Finding(host, "inventory", "ok", alone)
            continue
        text = "; ".join(_unlike(mine, other))
        name, value = next(((n, v) for n, v in other.items() if isinstance(v, float)), ("", None))
        mine_value = mine.get(name)
        number = mine_value if isinstance(mine_value, float) else None
        numbers = (number, value if isinstance(value, float) else None, name or None)
        yield Finding(host, "inventory", "warning", text, "differs", HINT, *numbers)


def _unlike(mine: Mapping[str, float | str], other: Mapping[str, float | str]) -> Iterator[str]:
    return (f"{name}: {_text(mine[name])}, and {_text(value)} elsewhere" for name, value in other.items())


def _names(items: Mapping[str, Mapping[str, float | str]]) -> list[str]:
    return list(dict.fromkeys(name for one in items.values() for name in one))


def _items(said: Json) -> dict[str, float | str]:
    """Return what a host is, by name: numbers as floats, so that the kinds of values are two."""
    found = {str(name): value for name, value in said.get("items", {}).items() if value is not None}
    devices = device_states(said.get("driver"))
    for number, device in enumerate(devices):
        found |= {f"device {number}: {name}": value for name, value in device.items.items()}
    found["devices that its driver shows"] = len(devices)
    return {name: value if isinstance(value, str) else float(value) for name, value in found.items()}


def _broken(said: Json) -> Iterator[str]:
    """Yield what a driver says of a device that no job should use."""
    for number, device in enumerate(device_states(said.get("driver"))):
        yield from (f"device {number} {why}" for why in device.broken)


def _usual(values: list[float | str]) -> float | str:
    """Return the median of numbers, of two in the middle the larger one, so that a host has it; or the most frequent value."""
    numbers = [value for value in values if isinstance(value, float)]
    return median_high(numbers) if len(numbers) == len(values) else Counter(values).most_common(1)[0][0]


def _differs(value: float | str, usual: float | str) -> bool:
    if isinstance(value, float) and isinstance(usual, float):
        return abs(value - usual) > NUMBER_TOLERANCE * abs(usual)
    return value != usual


def _text(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else value
