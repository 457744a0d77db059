"""Clocks of a supervisor that no machine moves."""

from __future__ import annotations

from jobctl.jobspec.deploy.apply.clock import Clock


class ByHand(Clock):
    """A clock that is set by hand."""

    time = 1000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


class Passing(Clock):
    """Time that passes only while somebody waits."""

    time = 1000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
