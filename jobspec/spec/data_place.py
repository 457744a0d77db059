"""Where the folder of a `source` of data is."""

from __future__ import annotations

import re

# As for scp: a colon before the first slash ends the name of a host.
_ON_HOST = re.compile(r"((?:[^/:@\s]+@)?(?:\[[0-9a-fA-F:]+\]|[^/:@\s]+)):(.*)", re.DOTALL)


def place_of_data(source: str) -> tuple[str | None, str]:
    """Return the host, as NAME or USER@NAME, and the folder there that a `source` means; None is this machine."""
    match = _ON_HOST.fullmatch(source)
    return (match[1], match[2]) if match else (None, source)
