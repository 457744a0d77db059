"""Batch scripts of Slurm: what is imported from them can be submitted; limits, and names of options."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from jobctl.jobspec.importers.slurm import recipes, sbatch_lines
from jobctl.jobspec.importers.slurm.option_syntax import split
from jobctl.jobspec.spec.durations import in_one_unit, parse_slurm
from jobctl.main import main

CASES = sorted((Path(__file__).parent / "cases").glob("slurm-*.txt"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_renders(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The spec that a batch script comes to is one that target slurm takes, with as many nodes."""
    spec = case.read_text(encoding="utf-8").partition("\nexit code 0\n")[2]
    for name in re.findall(r"script: (\S+)", spec):
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / "job.yaml").write_text(spec, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), "NO_COLOR": "1", "SLURM_JOB_ID": "1"})
    with pytest.raises(SystemExit) as ended:
        main(["render", "--target", "slurm", "--out", "out"])
    printed = capsys.readouterr()
    assert ended.value.code in (0, None), printed.err
    nodes = re.search(r"^nodes: (\d+)$", spec, re.MULTILINE)
    machines = int(nodes[1] if nodes else 1)
    scripts = [path.read_text(encoding="utf-8") for path in (tmp_path / "out").rglob("job.sbatch")]
    assert [f"#SBATCH --nodes={machines}\n" in script for script in scripts] == [True]


@pytest.mark.parametrize(
    ("written", "time"),
    [("90", "90m"), ("30:15", "1815s"), ("2:00:00", "2h"), ("1-12", "36h"), ("1-0:30", "1470m"), ("1-0:0:1", "86401s")],
)
def test_time(written: str, time: str) -> None:
    found = sbatch_lines.read(f"#SBATCH -t {written}\n")
    assert found is not None
    draft_time = in_one_unit(parse_slurm(found.options["--time"]) or 0)
    assert draft_time == time


def test_short_and_long_options() -> None:
    words = ["-N2", "-n", "4", "--gres=gpu:8", "-ul", "--exclusive", "--mem", "1G", "--", "-x"]
    assert split(words) == (
        [("--nodes", "2"), ("--ntasks", "4"), ("--gres", "gpu:8"), ("--unbuffered", ""), ("--label", "")]
        + [("--exclusive", ""), ("--mem", "1G")],
        ["-x"],
    )


def test_nodes_are_those_of_the_tasks() -> None:
    found = sbatch_lines.read("#SBATCH -n 16 --ntasks-per-node=8 -G 16\n")
    assert found is not None
    assert (found.nodes, found.per_node, found.gres, found.devices) == (2, 8, "gpu:8", 8)


def test_a_script_without_lines_is_not_one_of_slurm() -> None:
    assert sbatch_lines.read("#!/bin/bash\n##SBATCH -N 2\n# SBATCH -N 2\ntorchrun train.py\n") is None


def test_first_node_and_all_nodes() -> None:
    all_nodes = "scontrol show hostnames $SLURM_JOB_NODELIST"
    assert recipes.printed(all_nodes, 2) == f"{recipes.node(0)} {recipes.node(1)}"
    assert recipes.printed(f"{all_nodes} | head -n 1", 2) == recipes.node(0)
    assert recipes.printed("date +%s", 2) is None
