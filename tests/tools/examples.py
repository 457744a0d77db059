"""How many examples a property is tried with."""

from __future__ import annotations

import os

from hypothesis import settings


def examples(count: int) -> settings:
    """Return settings for `count` examples, or as many more or fewer as JOBCTL_TEST_WORLDS asks for, at most a hundred times."""
    part = min(100.0, int(os.environ.get("JOBCTL_TEST_WORLDS", "100")) / 100)
    return settings(max_examples=max(1, round(count * part)), deadline=None)
