"""What `jobctl import` makes of commands and scripts, as whole text: each file of cases/ holds input and output.

A case is `--- NAME` sections (files), a `$ jobctl import …` line, and below it what is printed, the files that are
written, and the exit code. Whatever is written is valid. New or changed output: `pytest tests/importers
--update-golden`, then read the difference.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.spec.hosts import load_hosts
from jobctl.jobspec.spec.load import load_spec
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
    files, command, expected = split_case(text, "$ jobctl ")
    folder = tmp_path / "resnet"
    folder.mkdir()
    for file, content in files.items():
        (folder / file).write_text(content, encoding="utf-8", newline="")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), "NO_COLOR": "1"})
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    printed = capsys.readouterr()
    written = [name for name in ("job.yaml", "hosts.txt") if name not in files and (folder / name).exists()]
    got = f"{printed.err}exit code {ended.value.code or 0}\n{printed.out}"
    got += "".join(f"--- {name}\n{(folder / name).read_text(encoding='utf-8')}" for name in written)
    if request.config.getoption("--update-golden"):
        path.write_text(text[: len(text) - len(expected)] + got, encoding="utf-8")
    else:
        assert got == expected
    _validates(folder, written)


def _validates(folder: Path, written: list[str]) -> None:
    if "job.yaml" in written:
        text = (folder / "job.yaml").read_text(encoding="utf-8")
        environ = dict.fromkeys(re.findall(r"\$\{(\w+)", text), "/x")
        loaded = load_spec(folder / "job.yaml", environ=environ)
        assert loaded.spec, loaded.diagnostics
    if "hosts.txt" in written:
        assert load_hosts(folder / "hosts.txt").diagnostics == ()


def test_cases_are_cases() -> None:
    """Every file is one: a line that was misspelled would test nothing."""
    for name in NAMES:
        assert split_case((CASES / f"{name}.txt").read_text(encoding="utf-8"), "$ jobctl ")[1].startswith("import"), (
            name
        )
    assert len(NAMES) >= 60
