"""The launcher, compiled, for the processes that run it once more: an interpreter that cannot use it takes the source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.system import bytecode
from jobctl.jobspec.launcher.system.bytecode import keep_compiled, keep_compiled_module, program_for
from jobctl.jobspec.render.launcher import launcher

SOURCE = os.path.abspath(bytecode.__file__)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that says `source`, of which another program, that says `compiled`, was kept."""
    path = tmp_path / "kept.py"
    path.write_text("said = 'source'\n")
    monkeypatch.setattr(bytecode, "CODE", compile("said = 'compiled'\n", str(path), "exec"))
    keep_compiled_module(str(path))
    return path


def said(module: Path, python: str = sys.executable) -> str:
    argv = [python, "-c", "import kept; print(kept.said, kept.__file__)"]
    environ = {**os.environ, "PYTHONPATH": str(module.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    word, file = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout.split()
    assert file == str(module)
    return word


def test_a_module_that_was_kept_is_not_compiled_again(module: Path) -> None:
    assert said(module) == "compiled"
    assert [path.name for path in module.parent.glob("__pycache__/*")] == [f"kept.{sys.implementation.cache_tag}.pyc"]


@pytest.mark.parametrize("text", ["said = 'source'  # of a newer version\n", "said = 'sourcE'\n"])
def test_a_file_that_was_replaced_is_compiled(module: Path, text: str) -> None:
    before = module.stat().st_mtime
    module.write_text(text)
    os.utime(module, (before + 2, before + 2))
    assert said(module).lower() == "source"


@pytest.mark.parametrize("garbage", [b"", b"\0" * 16, b"\xff" * 600_000])
def test_what_cannot_be_read_is_compiled(module: Path, garbage: bytes) -> None:
    (found,) = module.parent.glob("__pycache__/*")
    found.write_bytes(garbage)
    assert said(module) == "source"


@pytest.mark.every_python
def test_another_version_of_python_compiles_it(module: Path, python: str) -> None:
    asked = [python, "-c", "import sys; print(sys.implementation.cache_tag)"]
    tag = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    assert said(module, python) == ("compiled" if tag == sys.implementation.cache_tag else "source")


def test_nothing_is_kept_in_a_folder_that_is_not_the_jobs(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = module.parent / "elsewhere"
    monkeypatch.setattr(sys, "pycache_prefix", str(elsewhere))
    keep_compiled_module(str(module))
    assert not elsewhere.exists()


def test_a_folder_that_cannot_be_written_keeps_nothing(module: Path, capfd: Any) -> None:
    (found,) = module.parent.glob("__pycache__/*")
    found.unlink()
    found.parent.rmdir()
    found.parent.touch()
    keep_compiled_module(str(module))
    assert "cannot write" in capfd.readouterr().err
    assert said(module) == "source"


def test_only_this_interpreter_gets_what_it_has_compiled(tmp_path: Path) -> None:
    compiled = tmp_path / "launcher.pyc"
    compiled.touch()
    (tmp_path / "same").mkdir()
    (tmp_path / "same" / "python3").symlink_to(sys.executable)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)

    def chosen(python: str, search: str | None) -> str:
        return program_for(python, search, str(compiled))

    assert chosen(sys.executable, None) == str(compiled)
    assert chosen("python3", f"{tmp_path}/same:{tmp_path}/other") == str(compiled)
    assert chosen("python3", f"{tmp_path}/other:{tmp_path}/same") == SOURCE
    assert chosen("python3", str(tmp_path)) == SOURCE  # it is not there
    compiled.unlink()
    assert chosen(sys.executable, None) == SOURCE


def test_an_interpreter_named_from_another_folder_gets_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that runs it has a working directory of its own."""
    (tmp_path / "launcher.pyc").touch()
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert program_for("./python3", None, str(tmp_path / "launcher.pyc")) == SOURCE


def test_a_program_that_is_a_module_keeps_nothing(tmp_path: Path) -> None:
    assert keep_compiled(str(tmp_path)) == SOURCE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.every_python
def test_the_launcher_imports_no_module_that_only_a_standby_needs(tmp_path: Path, python: str) -> None:
    (tmp_path / "launcher.py").write_bytes(launcher())
    late = ["argparse", "asyncio", "concurrent.futures", "dataclasses", "http", "logging", "ssl", "typing", "urllib"]
    ask = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import launcher; print({{*{late}}} & {{*sys.modules}})"
    done = subprocess.run([python, "-S", "-E", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
