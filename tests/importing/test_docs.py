"""docs/import.md has a place for every option and variable of the tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobctl.jobspec.importing import deepspeed, devices, msrun, paddle, torchrun
from jobctl.jobspec.importing.options import Table

PAGE = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
TABLES = [paddle.TABLE, torchrun.TABLE, msrun.TABLE, deepspeed.TABLE]


def _documented(names: set[str]) -> set[str]:
    return {name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", PAGE)}


@pytest.mark.parametrize("table", TABLES, ids=[table.title for table in TABLES])
def test_every_option_and_variable_has_its_place(table: Table) -> None:
    options = {name for row in table.rows for name in row.names}
    # torchrun's variables are its options: PET_NNODES is --nnodes.
    variables = {name for name in table.variables if not name.startswith("PET_")}
    assert (options | variables) - _documented(options | variables) == set()


def test_every_variable_of_visible_devices_has_its_place() -> None:
    assert set(devices.VISIBLE) - _documented(set(devices.VISIBLE)) == set()
