"""The table of what `check` finds by comparing hosts with each other: the majority is right, and the findings name the others.

docs/check.md has a section for each code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from jobctl.jobspec.deploy.check.cut_off import HINT, cut_off
from jobctl.jobspec.deploy.check.survey import CheckedHost, Found, Survey
from jobctl.jobspec.deploy.model.finding import Finding

T = TypeVar("T")

SKEW = 0.5  # seconds between the clocks of two hosts


def _reachability(run: Survey, seats: Sequence[CheckedHost]) -> Found:
    """Say who is cut off. A host that has an error of its own explains its missing links."""
    met = {seat.name: seat.probe["meet"] for seat in seats if seat.probe and seat.probe["meet"]}
    cut = [(a, b, why) for a, meeting in met.items() for b, why in meeting["unreached"].items()]
    explained = {seat.name for seat in seats if seat.name not in met or met[seat.name]["listen"]}
    order = list(met)
    blamed = cut_off([(a, b) for a, b, _ in cut], order, explained)
    for host in order:
        if host in blamed:
            inward = [f"{a} cannot reach it ({why})" for a, b, why in cut if b == host and a not in explained]
            outward = [f"it cannot reach {b} ({why})" for a, b, why in cut if a == host and b not in explained]
            yield Finding(host, "network", "error", ", ".join(inward + outward), "unreachable-peers", HINT)
        elif host not in explained:
            yield Finding(host, "network", "ok", f"reaches all others; they reach it at port {met[host]['port']}")


def _same_machine(run: Survey, seats: Sequence[CheckedHost]) -> Found:
    """Find hosts that are one machine under two names.

    Machines that were cloned may share the id of their engine, but not a boot; one machine can have several engines.
    """
    first: dict[tuple[str, ...], str] = {}
    for seat in seats:
        boot = seat.facts.values.get("boot", "") if seat.facts else ""
        machine = (seat.engine.identity, seat.engine.root, boot) if seat.engine else ("",)
        if all(machine) and (other := first.setdefault(machine, seat.name)) != seat.name:
            text = f"it is the same machine as {other}: both names lead to one {seat.engine.name if seat.engine else 'engine'}"
            hint = "name it once in the hosts file; `nodes=2` lets one host take two nodes"
            yield Finding(seat.name, "engine", "error", text, "same-machine", hint)


def _clocks(run: Survey, seats: Sequence[CheckedHost]) -> Found:
    """Say whose clock differs from what most have; of two groups of a size, the one that agrees with this machine is right."""
    skews = {seat.name: seat.facts.skew for seat in seats if seat.facts}

    def agreeing(clock: float) -> tuple[int, float]:
        return sum(1 for other in skews.values() if abs(other - clock) <= SKEW), -abs(clock)

    usual = max(skews.values(), key=agreeing, default=0.0)
    for name, skew in skews.items():
        off = skew - usual
        if abs(off) > SKEW:
            text = f"its clock is {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} {_usual_clock(skews, usual)}"
            hint = "logs of several hosts are merged by time: start chrony or systemd-timesyncd there"
            yield Finding(name, "clock", "warning", text, "clock-skew", hint)


def _usual_clock(skews: Mapping[str, float], usual: float) -> str:
    count = sum(1 for skew in skews.values() if abs(skew - usual) <= SKEW)
    if 2 * count > len(skews):
        return "that of most hosts"
    return "this machine's" if abs(usual) <= SKEW else "that of others"


def _images_alike(run: Survey, seats: Sequence[CheckedHost]) -> Found:
    for name, image, usual in _unusual({seat.name: seat.image for seat in seats if seat.image}):
        text = f"its image is {_short(image)}, and {_short(usual)} elsewhere"
        hint = "`pull: always`, or load the same one everywhere"
        yield Finding(name, "image", "warning", text, "image-differs", hint)


def _short(image: str) -> str:
    return image.rpartition(":")[2][:12]


def _mtus(run: Survey, seats: Sequence[CheckedHost]) -> Found:
    found: dict[str, int] = {}
    for seat in seats:
        if seat.facts and seat.nodes:
            name = seat.nodes[0].launch.interface or seat.facts.interface_at(seat.nodes[0].host.address)
            if name is not None and name in seat.facts.mtu:
                found[seat.name] = seat.facts.mtu[name]
    for host, mtu, usual in _unusual(found):
        text = f"the MTU of its interface is {mtu}, and {usual} elsewhere"
        hint = "large packets vanish: set the same everywhere"
        yield Finding(host, "interface", "warning", text, "mtu-differs", hint)


def _unusual(found: Mapping[str, T]) -> list[tuple[str, T, T]]:
    """Return the hosts that have another value than most, with theirs and that; of values as frequent the first host's counts."""
    usual = next((value for value, _ in Counter(found.values()).most_common(1)), None)
    return [(host, value, usual) for host, value in found.items() if usual is not None and value != usual]


OF_ALL: tuple[Callable[[Survey, Sequence[CheckedHost]], Found], ...] = (
    _reachability,
    _same_machine,
    _clocks,
    _images_alike,
    _mtus,
)
