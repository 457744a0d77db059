"""The scripts that are run on hosts, with this machine's `sh`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from jobctl.jobspec.deploy import scripts


def hand_over(work: Path, ledger: bytes, control: bytes, tries: int) -> subprocess.Popen[bytes]:
    argv = [str(work / "run"), str(len(ledger)), str(len(control)), str(tries)]
    process = subprocess.Popen(["sh", "-c", scripts.HAND_OVER, "sh", *argv], stdin=-1, stderr=-1)
    assert process.stdin is not None
    process.stdin.write(ledger + control)
    process.stdin.close()
    return process


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("run", "node-0", "node-1", "node-2"):
        (tmp_path / name).mkdir()
    for node, state in ((0, "running"), (1, "waiting")):
        (tmp_path / f"node-{node}" / "report.json").write_text(json.dumps({"node": node, "state": state}))
    return tmp_path


def test_a_generation_is_handed_over(work: Path) -> None:
    process = hand_over(work, b"L" * 70_000, b"{}\n", 0)
    assert process.wait() == 0
    assert {path.name: path.stat().st_size for path in (work / "run").iterdir()} == {
        "ledger.json": 70_000,
        "control.json": 3,
    }


def test_it_stays_until_launchers_have_begun(work: Path) -> None:
    process = hand_over(work, b"", b"{}\n", 1_000_000)
    while not (work / "run" / "control.json").exists():
        assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    new = work / "node-1" / "new"
    new.write_text(json.dumps({"node": 1, "state": "running"}))
    new.replace(work / "node-1" / "report.json")
    assert (process.wait(), process.stderr.read() if process.stderr else None) == (0, b"")


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("~", "/home/me/h1/job"),
        ("~/a b", "/home/me/a b/h1/job"),
        ("/no/such", "/no/such/h1/job"),
        ("x", "/home/me/x/h1/job"),
    ],
)
def test_the_work_directory_is_found(directory: str, expected: str) -> None:
    argv = ["sh", "-c", scripts.PLACE, "sh", directory, "h1", "job"]
    found = subprocess.run(argv, env={"HOME": "/home/me", "PATH": "/usr/bin:/bin"}, capture_output=True, check=True)
    assert found.stdout.decode().splitlines()[0] == expected
