"""The clock of the world that is played: the launcher's modules read it in place of their machine's."""

from __future__ import annotations

import random
from typing import Any, TypeVar

from .world import Sim

World = TypeVar("World", bound=Sim)


class Clock:
    """The world whose time it is."""

    sim: Sim | None = None

    @classmethod
    def now(cls) -> float:
        return cls.sim.now if cls.sim else 0.0


def made(kind: type[World], nodes: int, spares: int, seed: int, **more: Any) -> World:
    """Return a world of a kind, whose clock is that of the launcher's modules."""
    random.seed(seed)
    Clock.sim = sim = kind.__new__(kind)  # type: ignore[assignment]
    sim.now = 0.0
    sim.__init__(nodes, spares, seed, **more)  # type: ignore[misc]
    return sim
