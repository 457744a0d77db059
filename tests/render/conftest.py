"""What the tests of rendering share: hand-made plans, and the tools that read what was rendered."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.compose import ToolMissing
from tests.tools.compose import compose as find_compose

HERE = Path(__file__).parent


def _missing(why: str) -> None:
    """Skip, or fail where all tools are to be there (JOBCTL_TOOLS=required)."""
    if os.environ.get("JOBCTL_TOOLS") == "required":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def compose() -> tuple[str, ...]:
    """The argv of Docker Compose v2."""
    try:
        return find_compose()
    except ToolMissing as error:
        _missing(str(error))
        raise


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Return the path of a program, for tests that cannot do without."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            _missing(f"{name} is not installed (apt-get install {name})")
        return str(path)

    return find
