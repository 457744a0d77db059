"""Kubernetes' quantities: `500m` cores, `16Gi` bytes (apimachinery's resource.Quantity)."""

from __future__ import annotations

import re
from decimal import Decimal

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|([eE][+-]?\d+))?")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "u": Decimal("1e-6"),
    "n": Decimal("1e-9"),
    "k": Decimal(1000),
    "Ki": Decimal(1024),
}
for _power, _letter in enumerate("MGTPE", 2):
    _FACTORS[_letter], _FACTORS[f"{_letter}i"] = Decimal(1000) ** _power, Decimal(1024) ** _power


def quantity(text: object) -> Decimal:
    """Return the number that a quantity means. Raises ValueError for what is none."""
    found = _FORM.fullmatch(str(text).strip())
    if found is None:
        raise ValueError(f"`{text}` is no quantity")
    number, unit, exponent = found.groups()
    return Decimal(number) * (Decimal(f"1{exponent}") if exponent else _FACTORS[unit or ""])
