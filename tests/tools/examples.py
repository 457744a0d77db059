"""How many examples a property is tried with."""

from __future__ import annotations

import os

from hypothesis import settings


def examples(count: int) -> settings:
    """Return settings for `count` examples; run.sh without arguments plays as small a part of them as of the worlds."""
    part = min(1.0, int(os.environ.get("JOBCTL_TEST_WORLDS", "100")) / 100)
    return settings(max_examples=max(1, round(count * part)), deadline=None)
