"""The event that keeps what a fitness check has found: for the report, which is made long after. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.unfit import measured_unfit
from jobctl.jobspec.launcher.telling.words import counted

CHECKS = frozenset({"compute", "memory", "storage", "link", "collective", "inventory"})


def fitness_event(findings: Sequence[Finding], mode: str, image: str | None) -> tuple[str, dict[str, Any]] | None:
    """Return message and details of the event, None if nothing was measured.

    `mode` and `image` are what hosts were measured with: their past is kept by these.
    """
    mine = [one for one in findings if one.check in CHECKS]
    if not mine:
        return None
    hosts = {one.host for one in mine if one.verdict != "skipped"}
    unfit = ", ".join(measured_unfit(mine))
    told = f", not fit: {unfit}" if unfit else ", all are fit" if hosts else ""
    message = f"fitness ({mode}): {counted(len(hosts), 'host')} measured{told}"
    return message, {"mode": mode, "image": image, "findings": [_told(one) for one in mine]}


def _told(one: Finding) -> dict[str, Any]:
    said = {"host": one.host, "check": one.check, "verdict": one.verdict, "message": one.message}
    more = {"code": one.code, "value": one.value, "median": one.median, "unit": one.unit}
    return {**said, **{key: value for key, value in more.items() if value is not None}}
