"""What a check of a host has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict about one host. `code` is stable where something is wrong, `hint` says what to do about it."""

    host: str
    check: str
    verdict: Verdict
    message: str
    code: str | None = None
    hint: str | None = None
