"""Every message of `jobctl validate`, as whole text: each file of cases/ holds the input and what is printed.

A case is `--- NAME` sections (files), a `$ jobctl …` line, and below it what the command prints and its exit code.
New or changed output: `pytest tests/errors --update-golden`, then read the difference.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.spec.checks.codes import CODES
from jobctl.main import main
from tests.tools.cases import split_case

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.stem for path in CASES.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_case(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: Any
) -> None:
    path = CASES / f"{name}.txt"
    text = path.read_text(encoding="utf-8")
    files, command, expected = split_case(text)
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content, encoding="utf-8", newline="")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), "NO_COLOR": "1"})
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
    printed = capsys.readouterr()
    got = f"{printed.out}{printed.err}exit code {ended.value.code or 0}\n"
    if request.config.getoption("--update-golden"):
        path.write_text(text[: len(text) - len(expected)] + got, encoding="utf-8")
    else:
        assert got == expected


# What no text file can hold, or no file at all: tests/spec/test_hostile.py; large files, and jobs that are up: tests/cli.
ELSEWHERE = {
    "hosts-file-gone",
    "large-code",
    "more-mistakes",
    "no-such-file",
    "not-a-file",
    "unreadable",
    "too-large",
    "not-text",
    "nul-character",
}


def test_every_code_has_a_case() -> None:
    outputs = "\n".join(split_case((CASES / f"{name}.txt").read_text(encoding="utf-8"))[2] for name in NAMES)
    shown = set(re.findall(r"^(?:error|warning): .* \[([a-z-]+)\]$", outputs, re.MULTILINE))
    assert shown <= set(CODES)
    assert set(CODES) - shown == ELSEWHERE


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 60
