"""What does not leave the environment of a command: the values of secrets, and of what only `notify` needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SPEC

SECRETS = """\
secrets: {HF_TOKEN: {env: MY_HF_TOKEN}, WANDB_API_KEY: {}}
notify: [{on: [failed], webhook: HOOK}, {on: [hang], webhook: MY_HF_TOKEN}]
"""
TOOLS = {"sbatch": "env > {seen}; echo 8", "srun": "env > {seen}"}
URL = "https://hooks.example.com/very-secret"


@pytest.fixture
def environ(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's environment."""
    for name in ("MY_HF_TOKEN", "WANDB_API_KEY", "HOOK"):
        monkeypatch.setenv(name, f"{URL}/{name}")
    monkeypatch.setenv("OTHER", "given")
    Path("job.yaml").write_text(SPEC + SECRETS)


@pytest.mark.usefixtures("environ")
@pytest.mark.parametrize("argv", [("up", "--skip-check", "--no-supervise"), ("run", "--", "true")])
def test_slurm_gets_no_value_of_secrets_and_notifications(
    jobctl: Any, argv: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm keeps the environment of a job for others to read, also the variable from which a secret of another name is read."""
    seen = tmp_path / "seen"
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "srun", "squeue", "scontrol", "sinfo", "sacct", "scancel"):
        tool = tmp_path / "bin" / name
        tool.write_text(f"#!/bin/sh\n{TOOLS.get(name, 'exit 0').format(seen=seen)}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    ran = jobctl(argv[0], "--target", "slurm", *argv[1:])
    given = seen.read_text()
    assert ("OTHER=given" in given, URL in given) == (True, False), (given, ran.err)


@pytest.mark.usefixtures("environ")
def test_a_look_around_on_this_machine_has_what_processes_would_have(jobctl: Any, tmp_path: Path) -> None:
    assert jobctl("run", "--", "sh", "-c", f"env > {tmp_path / 'seen'}").code == 0
    given = (tmp_path / "seen").read_text().splitlines()
    assert {f"HF_TOKEN={URL}/MY_HF_TOKEN", f"WANDB_API_KEY={URL}/WANDB_API_KEY", "OTHER=given"} <= set(given)
    assert not [line for line in given if line.startswith("HOOK=")]
