"""Which tests run first, and which are left out: what tests/conftest.py names is there."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_files_and_folders_that_the_choice_names_exist(pytestconfig: pytest.Config) -> None:
    """A file that has moved would run last, and leave all workers but one idle."""
    conftest = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    assert conftest is not None
    named = (*conftest.LONGEST, *conftest.LONG, *conftest.LEFT_OUT)
    assert [name for name in named if not (TESTS / name).exists()] == []
