"""What a check of a host has found."""

from __future__ import annotations

from typing import Literal

from jobctl.jobspec.records import dataclass

Verdict = Literal["ok", "warning", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict about one host. `code` is stable where something is wrong, `hint` says what to do about it.

    Where something was measured, `value` says how much, and `median` what it was compared with.
    """

    host: str
    check: str
    verdict: Verdict
    message: str
    code: str | None = None
    hint: str | None = None
    value: float | None = None
    median: float | None = None
    unit: str | None = None
