"""What jobs and variables may be called.

Without Pydantic: commands that name a running job need nothing else of the language.
"""

from __future__ import annotations

import re

NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def is_name(text: str) -> bool:
    """Say whether a job may be called so."""
    return re.fullmatch(NAME, text) is not None
