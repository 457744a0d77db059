"""What engines are told that start containers in Slurm. They are played."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from jobctl.jobspec.render.slurm import starting_files
from tests.render.plans import SLURM, planned

SPECS = dict(SLURM)
# Knows no container, and prints what it is told to run.
ENGINE = '#!/bin/sh\n[ "$1" != container ] || exit 1\n[ "$1" = run ] || exit 0\nprintf "%s\\n" "$@"\n'


def started(work: Path, engine: str, environ: dict[str, str]) -> list[str]:
    """Start a container with such variables of Slurm's; return the arguments that its engine gets."""
    for file in starting_files(planned(SPECS[f"slurm-{engine}"], "slurm")):
        (work / file.path).write_bytes(file.content)
    (work / engine).write_text(ENGINE)
    (work / engine).chmod(0o755)
    argv = ["sh", str(work / "start.sh"), "start", "0", "10.0.0.1", str(work / "0"), ""]
    environ = {"PATH": f"{work}:{os.environ['PATH']}", **environ}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()


CONSTRAINED = {"SLURM_STEP_GPUS": "4,5", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"}  # of the first machine
UUIDS = {"SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "MIG-2f3a,MIG-77bc"}


@pytest.mark.parametrize(
    ("engine", "environ", "gpus", "named"),
    [
        ("docker", CONSTRAINED, ['"device=4,5"'], True),
        ("docker", UUIDS, ["all"], False),
        ("docker", {}, ["all"], False),  # a job that has a machine alone, and asked for no GPUs
        ("podman", CONSTRAINED, ["nvidia.com/gpu=5", "nvidia.com/gpu=4"], True),
        ("podman", UUIDS, ["nvidia.com/gpu=all"], False),
    ],
)
def test_a_container_gets_the_gpus_that_are_the_jobs(
    engine: str, environ: dict[str, str], gpus: list[str], named: bool, tmp_path: Path
) -> None:
    """Outside of the job's control group, GPU 0 of Slurm's variables is another job's."""
    words = started(tmp_path, engine, environ)
    options, inside = words[: words.index("--")], words[words.index("inside") :]
    found = [
        after for word, after in itertools.pairwise(options) if word == "--gpus" or after.startswith("nvidia.com/")
    ]
    assert (found, "--named-devices" in inside) == (gpus, named)


@pytest.mark.parametrize(("env", "named"), [("", False), ("env: {KEY: value}\n", True)])
def test_a_container_without_variables_of_its_own_reads_no_file_of_the_user(
    env: str, named: bool, tmp_path: Path
) -> None:
    """One of another user (`container.user: UID:GID`) may not read it, and would not start."""
    spec = f"name: tiny\nframework: torch\nscript: train.py\nimage: torch:2.9\ncode: .\n{env}"
    files = list(starting_files(planned(f"{spec}slurm: {{directory: /shared, container: podman}}\n", "slurm")))
    script = next(file.content for file in files if file.path == "start.sh")
    assert (b"--environ" in script, "environ.json" in {file.path for file in files}) == (named, named)


def test_machines_that_share_a_home_have_containers_of_their_own(tmp_path: Path) -> None:
    """Enroot keeps them in the user's home: each machine removed those of the others, which were running."""
    (start,) = (file for file in starting_files(planned(SPECS["slurm-enroot"], "slurm")) if file.path == "start.sh")
    (tmp_path / "start.sh").write_bytes(start.content)
    (tmp_path / "enroot").write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/told\n[ "$1" != list ] || cat {tmp_path}/there\n'
    )
    (tmp_path / "enroot").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    (tmp_path / "there").write_text("jobctl-resnet-7-gpu01-0\n")
    for host in ("gpu01", "gpu02"):
        own = tmp_path / "hosts" / host / "0"
        own.mkdir(parents=True)
        argv = ["sh", str(tmp_path / "start.sh"), "start", "0", "10.0.0.1", str(own), "/image.sqsh"]
        subprocess.run(argv, env=environ, capture_output=True, check=True)
    told = [line.split() for line in (tmp_path / "told").read_text().splitlines()]
    assert [words[-1] for words in told if words[0] == "remove"] == ["jobctl-resnet-7-gpu01-0"]
    created = [words[words.index("--name") + 1] for words in told if words[0] == "create"]
    assert created == ["jobctl-resnet-7-gpu01-0", "jobctl-resnet-7-gpu02-0"]
