"""The shell that is sent to hosts: shellcheck finds nothing, and each file says what it prints."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "jobspec").rglob("*.sh"))
ONE_LINE = 120  # characters of shell that Python may hold; what is longer belongs into a file


def shellcheck() -> str:
    path = shutil.which("shellcheck")
    if path is None:
        reason = "shellcheck is not installed (apt-get install shellcheck)"
        pytest.fail(reason) if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip(reason)
    return str(path)


def test_shellcheck_finds_nothing() -> None:
    argv = [shellcheck(), "--norc", "--external-sources", "--source-path=SCRIPTDIR", *map(str, FILES)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_script_says_what_it_prints(path: Path) -> None:
    first, *lines = path.read_text().splitlines()
    header = " ".join(line.lstrip("# ") for line in lines[: next(n for n, line in enumerate(lines) if line[:1] != "#")])
    assert first == "#!/bin/sh"
    assert re.search(r"\b[Pp]rints\b", header), header
    assert max(map(len, lines)) <= 140


def test_hosts_get_a_script_in_one_piece_and_without_comments() -> None:
    assert SCRIPTS.argv("find_and_observe", "~", "h1", "job")[3:] == ["sh", "~", "h1", "job"]
    text = SCRIPTS.text("find_and_observe")
    begin, end = SCRIPTS.text("find"), SCRIPTS.text("observe")
    assert text == f'{begin}set -- "$work" "$own"\n{end}'
    assert not any(line.startswith(("#", ". ./")) for line in text.splitlines())


def test_python_holds_no_long_shell() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "jobspec" / "deploy").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > ONE_LINE
        if re.search(r"\|\| exit|^set -e|\bcd -- |\bdone;? ?:?$", node.value, re.MULTILINE)
    ]
    assert wrong == []
