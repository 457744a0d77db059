"""A folder that a link leads to is the same one by both of its names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobctl import jobspec
from jobctl.jobspec.operations.resolve.planning import context_of
from tests.cli.conftest import SPEC

CODE = f"{SPEC}image: i\ncode: ../src\n"


@pytest.fixture
def names(jobctl: Any, tmp_path: Path) -> tuple[Path, Path]:
    """A folder with a spec, by its own name and by that of a link elsewhere; beside both is a folder `src`."""
    own, link = tmp_path / "project" / "jobs", tmp_path / "jobs"
    own.mkdir(parents=True)
    link.symlink_to(own)
    for folder, file in ((tmp_path, "other.py"), (tmp_path / "project", "train.py")):
        (folder / "src").mkdir()
        (folder / "src" / file).write_text("print(1)\n")
    (own / "job.yaml").write_text(CODE)
    (own / "hosts.txt").write_text("gpu[1-2]\n")
    return own, link


@pytest.mark.parametrize("hosts", [True, False], ids=["hosts", "local"])
def test_the_same_is_rendered_by_both_names(jobctl: Any, names: tuple[Path, Path], hosts: bool) -> None:
    own, link = (
        jobctl("render", str(name / "job.yaml"), *(["--hosts", str(name / "hosts.txt")] if hosts else []))
        for name in names
    )
    assert (own.code, link.code, link.out) == (0, 0, own.out)


def test_the_folder_above_is_that_of_the_spec_and_not_of_the_link(jobctl: Any, names: tuple[Path, Path]) -> None:
    plan = jobspec.plan(jobspec.load(names[1] / "job.yaml"))
    assert plan.code is not None
    assert plan.code.source == str(names[0].parent / "src")


def test_what_is_no_code_is_none_by_either_name(jobctl: Any, names: tuple[Path, Path]) -> None:
    own, link = names
    (own / "job.yaml").rename(own.parent / "first.yaml")
    (own / "job.yaml").symlink_to("../first.yaml")
    (own / "checkpoints").mkdir()
    (own / "checkpoints" / "step-1.pt").write_text("x")
    text = CODE.replace("../src", ".").replace("/tmp/small", str(link / "checkpoints"))
    (own / "job.yaml").write_text(text)
    for name in names:
        ran = jobctl("validate", str(name / "job.yaml"), "--hosts", str(name / "hosts.txt"), "-o", "json")
        found = json.loads(ran.out)["code"]
        assert (found["files"], [one["path"] for one in found["left_out"]]) == (0, ["hosts.txt", "job.yaml"]), name


def test_a_job_of_an_earlier_version_keeps_the_name_that_it_was_started_with(
    jobctl: Any, names: tuple[Path, Path], tmp_path: Path
) -> None:
    source = tmp_path / "state" / "jobs" / "small" / "source.json"
    source.parent.mkdir(parents=True)
    job = jobspec.load(names[0] / "job.yaml")
    for before, now in ((names[1], names[1]), (tmp_path, names[0])):
        source.write_text(json.dumps({"context": {"directory": str(before)}}))
        assert context_of(job).directory == str(now)
