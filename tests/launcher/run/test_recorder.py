"""What NCCL's flight recorder has written goes to the logs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.run.run import Run


@pytest.mark.parametrize("mine", [True, False])
def test_records_of_other_users_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: bool) -> None:
    """In /tmp they have the same names, and may be as large as their owner likes."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "trace_0").write_text("calls")
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user if mine else user + 1)
    environ = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/trace_"}
    run: Any = SimpleNamespace(
        environment=SimpleNamespace(environ=environ), folders=SimpleNamespace(logs=str(tmp_path / "logs"))
    )
    Run.keep_recorder(run)
    assert os.listdir(tmp_path / "logs") == (["trace_0"] if mine else [])
