"""MindSpore: the language knows it; this version validates such specs and does not plan them yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import RecoveryStyle, Seat, Start

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec


@dataclass(frozen=True, slots=True)
class MindSpore:
    """A framework whose jobs are refused by the planner, with the reason."""

    module: str = "mindspore"
    recovery: RecoveryStyle = "gang"

    def start(self, spec: Spec, seat: Seat) -> Start:
        """Never reached: the planner asks `unsupported` first."""
        raise AssertionError("the planner refuses mindspore before it asks how to start it")

    def visible(self, kind: str) -> tuple[str, ...]:
        """Never reached either."""
        return ()

    def unsupported(self, spec: Spec) -> str | None:
        """Everything, so far."""
        return "framework `mindspore`"


FRAMEWORK = MindSpore()
