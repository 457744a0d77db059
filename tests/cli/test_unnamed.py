"""Commands on a job that runs, where no job is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("command", [("status",), ("down",), ("ssh",), ("forward", "6006"), ("top",), ("events",)])
def test_without_a_spec_here_a_job_is_to_be_named(jobctl: Any, command: tuple[str, ...]) -> None:
    """To write a spec would not help a user who looks for a job that runs."""
    Path("job.yaml").unlink()
    ran = jobctl(*command)
    assert (ran.code, ran.err.splitlines()) == (
        2,
        [
            "error: no job is named, and there is no `job.yaml` here",
            "hint: name one: `jobctl list` shows those that are up",
        ],
    )
