"""Values as launchers write them. Readers raise ValueError with the reason, in words for a note."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from jobctl.jobspec.importers.draft import HostLine
from jobctl.jobspec.spec.hosts import is_ipv6

Endpoints: TypeAlias = tuple[tuple[str, int | None], ...]

LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|0\.0\.0\.0|::1|\[::1\]")


def whole_number(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"`{text}` is not a number")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = whole_number(text)
    if not number:
        raise ValueError("it has to be 1 or more")
    return number


def port(text: str) -> int:
    """A TCP port; 0 is refused, as it leaves the choice to the launcher."""
    number = whole_number(text)
    if not 1 <= number <= 65535:
        raise ValueError("jobctl chooses a free port" if number == 0 else f"`{text}` is not a port")
    return number


def node_range(text: str) -> tuple[int, int]:
    """`4` or `2:4`."""
    first, colon, last = text.partition(":")
    least, most = positive(first), positive(last) if colon else positive(first)
    if least > most:
        raise ValueError("the minimum is above the maximum")
    return least, most


def ids(text: str) -> tuple[int, ...]:
    """Numbers of devices: `0,1,2`, `0-3`."""
    numbers: list[int] = []
    for part in text.replace(" ", "").strip(",").split(","):
        first, dash, last = part.partition("-")
        numbers += range(whole_number(first), whole_number(last if dash else first) + 1)
        if len(numbers) > 4096:
            raise ValueError("these are more than 4096 devices")
    if len(set(numbers)) != len(numbers):
        raise ValueError("a device appears twice")
    return tuple(numbers)


def span(numbers: Iterable[int]) -> str:
    """Return numbers of devices as the spec writes them: `0-3,6`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def seconds(text: str) -> str:
    """A duration in seconds, as the spec writes it."""
    if not re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        raise ValueError(
            "it is not a time that ends" if text.startswith("-") else f"`{text}` is not a number of seconds"
        )
    number = float(text)
    if not number:
        raise ValueError("it is not a time")
    return f"{number:.12g}s" if number % 60 or number < 120 else f"{number / 60:.12g}m"


def truth(text: str) -> bool:
    """`1`, `true`, `yes` and their opposites."""
    if text.lower() in ("1", "true", "yes", "on", ""):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"`{text}` is neither true nor false")


def listed(text: str) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def endpoint(text: str) -> tuple[str, int | None]:
    """`host:port`, `host`, `tcp://host:port`."""
    place = re.sub(r"^[a-z]+://", "", text).rstrip("/")
    if _is_ipv6(plain(place)):
        return f"[{plain(place)}]", None
    host, colon, number = place.rpartition(":")
    if not colon:
        host, number = number, ""
    if not host or "/" in host or (colon and not number.isdigit()):
        raise ValueError(f"`{text}` is not `host:port`")
    return host, port(number) if number else None


def endpoints(text: str) -> Endpoints:
    """`host:port,host:port`."""
    return tuple(endpoint(part) for part in listed(text))


def etcd_endpoints(text: str) -> tuple[str, ...]:
    """Endpoints of an etcd, with or without scheme."""
    return tuple(f"{host}:{number or 2379}" for host, number in endpoints(text))


def host_names(text: str) -> tuple[str, ...]:
    """`a,b`: names or addresses of hosts."""
    names = tuple(listed(text))
    for name in names:
        if not host_name(name):
            raise ValueError(f"`{name}` is not a host")
    if not names:
        raise ValueError("it names nobody")
    return names


def host_name(text: str) -> bool:
    """Say whether `text` can be a host in a hosts file."""
    return _is_ipv6(plain(text)) or bool(re.fullmatch(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?", text))


def _is_ipv6(text: str) -> bool:
    """Say whether `text` is an address that a hosts file can hold in brackets."""
    return re.fullmatch(r"[0-9A-Fa-f:]+", text) is not None and is_ipv6(text)


def plain(name: str) -> str:
    """Return a host without the brackets that stand around an IPv6 address."""
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def loopback(name: str) -> bool:
    """Say whether a host is whatever machine one is on."""
    return bool(LOOPBACK.fullmatch(name))


def host_lines(names: Iterable[str]) -> tuple[HostLine, ...]:
    """Return hosts that other machines can reach, each once; one that is named n times takes n nodes."""
    counts: dict[str, int] = {}
    for name in names:
        if host_name(name) and not loopback(name):
            counts[plain(name)] = counts.get(plain(name), 0) + 1
    return tuple(HostLine(name, nodes=count) for name, count in counts.items())
