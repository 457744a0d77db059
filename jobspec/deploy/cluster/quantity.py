"""Kubernetes' quantities: `500m` cores, `16Gi` bytes (apimachinery's resource.Quantity)."""

from __future__ import annotations

import re
from decimal import Decimal

_FORM = re.compile(r"([+-]?[0-9.]+)([num]|[kMGTPE]i?|Ki|[eE][+-]?\d+)?")
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
    number, unit = Decimal(found.group(1)), found.group(2) or ""
    return number * (Decimal(f"1{unit}") if unit[:1] in ("e", "E") and unit[1:] else _FACTORS[unit])
