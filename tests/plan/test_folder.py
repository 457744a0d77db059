"""The folder of the spec, which is part of a plan."""

from __future__ import annotations

import os

import pytest

from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context, PlanError
from tests.plan.made import spec_of


def test_a_folder_whose_path_is_not_utf_8_is_refused_in_words() -> None:
    """What keeps a plan is JSON, which has no such text; in a locale without UTF-8 any other letter looks so."""
    folder = os.fsdecode(b"/specs/caf\xe9")
    with pytest.raises(PlanError) as error:
        planner.plan(spec_of(""), (), Context("local", folder, "me@here", "1.0"))
    assert (error.value.code, error.value.message) == (
        "not-utf-8",
        "the path of the spec's folder is not UTF-8: `/specs/caf\\xe9`",
    )
