"""`jobctl` in this process, in a directory that holds a small valid spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.main import main

SPEC = """\
name: small
framework: torch
module: train
nodes: 2
checkpoint: /tmp/small
"""


class Ran:
    """What a command printed, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def jobctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `jobctl` in this process, in a directory that holds a small valid spec."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("JOBCTL_HOSTS", "JOBCTL_SSH_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "job.yaml").write_text(SPEC)

    def run(*argv: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(list(argv))
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run
