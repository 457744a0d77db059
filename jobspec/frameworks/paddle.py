"""PaddlePaddle: the language knows it; this version validates such specs and does not plan them yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import RecoveryStyle, Start

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec


@dataclass(frozen=True, slots=True)
class Paddle:
    """A framework whose jobs are refused by the planner, with the reason."""

    module: str = "paddle"
    recovery: RecoveryStyle = "gang"

    def start(self, spec: Spec, python: str, nproc: int) -> Start:
        """Never reached: the planner asks `unsupported` first."""
        raise AssertionError("the planner refuses paddle before it asks how to start it")

    def unsupported(self, spec: Spec) -> str | None:
        """Everything, so far."""
        return "framework `paddle`"


FRAMEWORK = Paddle()
