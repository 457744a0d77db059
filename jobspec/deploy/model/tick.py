"""The line that a launcher writes for its supervisor, with each tick."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from jobctl.jobspec.deploy.model.untrusted import Json, as_moment, as_number, as_text, number_in, parse_object
from jobctl.jobspec.launcher.peers.lease import PROBE_MARK
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """One line of a launcher's: the `name` of the tick, and which `report` it has written last. That of a spare is of node -1.

    `echo` is what the supervisor answered last, its token and time, `unheard` whom it has not answered for how many
    seconds, `clear` which moved nodes it keeps alive nowhere else; None where it does not say so. `kept` are nodes that
    it may keep alive where launchers have moved them, although the order does not say so.
    """

    node: int
    name: str
    generation: str | None
    report: str | None
    progress: int | None
    echo: tuple[str, float] | None
    unheard: Mapping[int, float] | None
    clear: frozenset[int] | None = None
    paces: Mapping[int, float] = field(default_factory=dict)  # own seconds in each step, by local rank
    kept: frozenset[int] = frozenset()


def parse_tick(line: bytes | str) -> Tick | None:
    """Return what a launcher has written, None for what no launcher writes: anything in the container can."""
    return tick_of(parse_object(line) or {})


def tick_of(said: Json) -> Tick | None:
    """Return the tick that a line holds, None for other lines."""
    node, name = as_number(said.get("node")), as_text(said.get("tick"))
    node = -1 if said.get("node") == -1 else node
    if node is None or name is None or "\n" in name:
        return None
    token, _, stamp = (as_text(said.get("echo")) or "").removesuffix(PROBE_MARK).partition(":")
    at = _seconds(stamp)
    unheard = said.get("unheard")
    ages = {number_in(other): as_moment(age) for other, age in unheard.items()} if isinstance(unheard, dict) else None
    return Tick(
        node,
        name,
        as_text(said.get("generation")),
        as_text(said.get("report")),
        as_number(said.get("progress")),
        None if at is None else (token, at),
        None if ages is None else {other: age for other, age in ages.items() if other is not None and age is not None},
        _nodes(said.get("clear")),
        _paces(said.get("paces")),
        _nodes(said.get("kept")) or frozenset(),
    )


def _paces(said: object) -> dict[int, float]:
    told = {number_in(local): as_moment(pace) for local, pace in said.items()} if isinstance(said, dict) else {}
    return {local: pace for local, pace in told.items() if local is not None and pace is not None}


def _nodes(said: object) -> frozenset[int] | None:
    return frozenset(node for node in said if isinstance(node, int)) if isinstance(said, list) else None


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
