"""What the tests of deploying share: a real browser for those that need one, and data with a host to send it to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.browser import browse

from .sent_data import data_folder, host_of_data

__all__ = ["browse"]  # a fixture


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with data."""
    return data_folder(tmp_path)


@pytest.fixture
def host(tmp_path: Path) -> Any:
    """A host that gets data."""
    return host_of_data(tmp_path)
