"""Batch scripts of Slurm: what is imported from them can be submitted; limits, and names of options."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from jobctl.jobspec.importers.draft import ImportProblem
from jobctl.jobspec.importers.jobs import ImportContext, import_text
from jobctl.jobspec.importers.slurm import recipes, sbatch_lines
from jobctl.jobspec.importers.slurm.option_syntax import is_known, split
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


def test_options_with_a_second_name() -> None:
    """`sbatch` takes both, and many scripts have the one that no manual has."""
    found = sbatch_lines.read("#SBATCH -N2 --tasks-per-node=4 --extra=a --context=b\n")
    assert found is not None
    assert found.per_node == 4
    assert all(map(is_known, found.options))


def test_nodes_are_those_of_the_tasks() -> None:
    found = sbatch_lines.read("#SBATCH -n 16 --ntasks-per-node=8 -G 16\n")
    assert found is not None
    assert (found.nodes, found.per_node, found.gres, found.devices) == (2, 8, "gpu:8", 8)


@pytest.mark.parametrize(
    ("written", "gres", "devices"),
    [
        ("--gpus-per-node=4 --gres=tmpfs:200g", "gpu:4,tmpfs:200g", 4),
        ("--gres=nvme:1,gpu:a100:4 --gpus-per-node=4", "nvme:1,gpu:a100:4", 4),
        ("--gres=gpu:1g.10gb:2(S:0,1),nvme:1", "gpu:1g.10gb:2(S:0,1),nvme:1", 2),
        ("--gres=gpu:a100", "gpu:a100", 1),
        ("--gres=tmpfs:200g", "tmpfs:200g", None),
    ],
)
def test_devices_beside_other_resources(written: str, gres: str, devices: int | None) -> None:
    """A job would wait for no GPU at all if the resources beside them took their place."""
    found = sbatch_lines.read(f"#SBATCH {written}\n")
    assert found is not None
    assert (found.gres, found.devices) == (gres, devices)


def test_a_heterogeneous_job_is_refused() -> None:
    """The lines of its components would count for one another."""
    with pytest.raises(ImportProblem, match="heterogeneous") as raised:
        sbatch_lines.read("#!/bin/bash\n#SBATCH -N1 -p cpu --mem=16G\n#SBATCH hetjob\n#SBATCH -N2 -p gpu\n")
    assert raised.value.line == 3


@pytest.mark.parametrize("option", ["--export=NONE", "--gpu-bind=closest"])
def test_what_has_no_place_is_said(option: str) -> None:
    script = f"#!/bin/bash\n#SBATCH -N2 --gres=gpu:8 {option}\nsrun torchrun --nnodes=2 --nproc-per-node=8 train.py\n"
    job = import_text(script, ImportContext("/work", "work", lambda name: None))
    assert job.fields["slurm"] == {"exclusive": False}
    assert [note for note in job.notes if option in note and note.startswith("not carried over")]


def test_a_script_without_lines_is_not_one_of_slurm() -> None:
    assert sbatch_lines.read("#!/bin/bash\n##SBATCH -N 2\n# SBATCH -N 2\ntorchrun train.py\n") is None


def test_first_node_and_all_nodes() -> None:
    all_nodes = "scontrol show hostnames $SLURM_JOB_NODELIST"
    assert recipes.printed(all_nodes, 2) == f"{recipes.node(0)} {recipes.node(1)}"
    assert recipes.printed(f"{all_nodes} | head -n 1", 2) == recipes.node(0)
    assert recipes.printed("date +%s", 2) is None


@pytest.mark.parametrize("count", ["wc -l", "wc -w", "grep -c ."])
def test_nodes_that_are_counted(count: str) -> None:
    assert recipes.printed(f'scontrol show hostnames "$SLURM_JOB_NODELIST" | {count}', 3) == "3"


@pytest.mark.parametrize(
    "joined",
    ["tr '\\n' ','", "tr '\\n' ',' | sed 's/,$//'", "paste -sd,", "paste -s -d ','", "cut -d. -f1 | paste -sd,"],
)
@pytest.mark.parametrize("word", ["hostnames", "hostname"])
def test_nodes_between_commas(word: str, joined: str) -> None:
    said = recipes.printed(f"scontrol show {word} $SLURM_JOB_NODELIST | {joined}", 2)
    assert said == f"{recipes.node(0)},{recipes.node(1)}"


def test_nodes_that_are_joined_otherwise_or_taken_out_again() -> None:
    listed = "scontrol show hostnames $SLURM_JOB_NODELIST"
    assert recipes.printed(f"{listed} | paste -sd ' '", 2) == f"{recipes.node(0)} {recipes.node(1)}"
    for first in ("tr '\\n' ',' | cut -d, -f1", "paste -sd, | awk -F, '{print $1}'", "head -n 1 | tr -d ','"):
        assert recipes.printed(f"{listed} | {first}", 2) == recipes.node(0)


def test_other_words_of_scontrol_are_no_nodes() -> None:
    shown = "scontrol show job $SLURM_JOB_ID"
    assert recipes.printed(f"{shown} | awk -F= '/Command=/{{print $2}}'", 2) is None
    assert recipes.printed(f"{shown} | grep TimeLimit | cut -d= -f3", 2) is None
    assert recipes.printed(f"{shown} | grep BatchHost | cut -d= -f2", 2) == recipes.node(0)
