"""A command in Slurm with what the job would have: what is sent for it, and what it asks Slurm for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.slurm_look import look_command, look_files, look_plan, machine_options
from tests.render.plans import SLURM, planned

GOLDEN = Path(__file__).parent.parent / "golden" / "looks"
SPECS = dict(SLURM)
# Takes its image, and runs the command behind it, as all engines do.
ENGINE = '#!/bin/sh\nwhile [ "${1%.sif}" = "$1" ]; do shift; done\nshift\nexec "$@"\n'
# Knows no container, and has its image. Tells the GPUs that it is asked for, and runs the command behind its image.
DOCKER = """#!/bin/sh
case $1 in container) exit 1 ;; run) ;; *) exit 0 ;; esac
while [ "$1" != -- ]; do [ "$1" != --gpus ] || echo "$2"; shift; done
shift 2
exec env -i PATH="$PATH" "$@"
"""


def look(name: str) -> Plan:
    return look_plan(planned(SPECS[name], "slurm"), "3fa9")


@pytest.mark.parametrize("name", SPECS)
def test_the_script_starts_a_command_in_place_of_the_launcher(name: str, request: pytest.FixtureRequest) -> None:
    files = {file.path: file.content.decode() for file in look_files(look(name))}
    path = GOLDEN / f"{name}.sh"
    if request.config.getoption("--update-golden"):
        path.write_text(files["start.sh"])
    assert files["start.sh"] == path.read_text()
    named = {"environ.json"} if '--environ "$work/environ.json"' in files["start.sh"] else set()
    assert files.keys() == {"start.sh", "slurm.json", "allocation.py"} | named
    assert "SLURM_PROCID" in json.loads(files["slurm.json"])["scrub"]


def test_slurm_is_asked_for_one_machine_like_those_of_the_job() -> None:
    plan = look("slurm-full")
    given = plan.slurm
    assert given is not None
    plan = replace(plan, slurm=replace(given, options=("--licenses=a b", "-ws[1-4]", "--array=1-3", "--nice=100")))
    assert machine_options(plan) == [
        "--job-name=resnet", "--partition=gpu", "--account=vision", "--qos=high", "--constraint=a100&ib",
        "--reservation=tuesday", "--gres=gpu:a100:8", "--time=1-12:00:00", "--cpus-per-task=4", "--mem=102400M",
        '--comment=jobctl /shared/50% "of" it/.jobctl/.look-resnet.3fa9', "--nodes=1", "--ntasks=1",
        "--licenses=a b", "--nice=100",
    ]  # fmt: skip
    work = '/shared/50% "of" it/.jobctl/.look-resnet.3fa9'
    assert look_command(plan, ["ls", "-l"]) == [
        *("/opt/python/bin/python3", f"{work}/allocation.py", "look", "--work", work, "--", "ls", "-l"),
    ]


def run_like(
    tmp_path: Path, name: str, *argv: str, told: Mapping[str, str] = {}, **changes: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command with what is sent for it, in a directory with a space in its name, and an engine that is played."""
    work, tools = tmp_path / "its work", tmp_path / "bin"
    plan = look(name)
    assert plan.slurm is not None
    container = replace(plan.nodes[0].container, python=sys.executable, **changes)
    nodes = (replace(plan.nodes[0], container=container), *plan.nodes[1:])
    slurm = replace(plan.slurm, work=str(work), workdir=str(tmp_path), python=sys.executable)
    plan = replace(plan, slurm=slurm, nodes=nodes)
    for file in look_files(plan):
        (work / file.path).parent.mkdir(parents=True, exist_ok=True)
        (work / file.path).write_bytes(file.content)
    if plan.nodes[0].launch.secrets:
        (work / "secrets").mkdir()
        (work / "secrets" / "secrets.json").write_text('{"TOKEN": "hidden-7"}')
    tools.mkdir(exist_ok=True)
    for engine, text in (("apptainer", ENGINE), ("docker", DOCKER)):
        (tools / engine).write_text(text)
        (tools / engine).chmod(0o755)
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7", **told}
    done = subprocess.run(
        look_command(plan, argv), env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert not work.exists()
    return done


def test_a_command_runs_on_the_machine_itself_and_leaves_nothing(tmp_path: Path) -> None:
    done = run_like(
        tmp_path, "slurm", "sh", "-c", 'pwd; echo "${SLURM_PROCID:-none} $SLURM_JOB_ID $1"; exit 7', "0", "a b"
    )
    assert (done.stdout, done.returncode) == (f"{tmp_path}\nnone 7 a b\n", 7)
    missing = run_like(tmp_path, "slurm", "no-such-command")
    assert (missing.returncode, missing.stderr) == (127, "no-such-command: No such file or directory\n")


def test_a_command_in_a_container_has_the_secrets_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SPECS["slurm-sif"].replace("code: .\n", "").replace("/shared/checkpoints", f"{tmp_path}/checkpoints")
    monkeypatch.setitem(SPECS, "slurm-sif", text)
    done = run_like(tmp_path, "slurm-sif", "sh", "-c", 'echo "$GREETING $TOKEN $1"', "0", "$HOME 'x")
    assert (tmp_path / "checkpoints").is_dir()  # a volume of the container
    assert (done.stdout, done.stderr, done.returncode) == ("it's hidden-7 $HOME 'x\n", "", 0)


def test_a_command_in_a_container_has_the_gpus_of_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a variable of the task, which says nothing to the command; with the first ones it would have another job's."""
    monkeypatch.setitem(SPECS, "slurm-docker", SPECS["slurm-docker"].replace("code: .\n", ""))
    told = {"SLURM_STEP_GPUS": "4,5", "CUDA_VISIBLE_DEVICES": "0,1"}
    shown = 'echo "${CUDA_VISIBLE_DEVICES:-uncounted} ${SLURM_PROCID:-untold}"'
    done = run_like(tmp_path, "slurm-docker", "sh", "-c", shown, told=told, pull="never")
    assert done.stdout.splitlines() == ['"device=4,5"', "uncounted untold"]


def test_an_image_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = run_like(tmp_path, "slurm-apptainer", "true", pull="never")
    assert done.returncode == 125
    assert "cannot fetch image torch:2.9: `pull: never`, and there is no " in done.stderr
