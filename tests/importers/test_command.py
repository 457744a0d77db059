"""The command around the import: stdin, stdout, exit codes, and what it must not load or replace."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobctl.main import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run `jobctl import` in an empty directory; returns the exit code, stdout and stderr."""
    folder = tmp_path / "resnet"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def call(*argv: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main(["import", *argv])
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def test_a_script_from_stdin(run: Any) -> None:
    code, out, err = run("-", stdin=b"export A=1\ntorchrun train.py\n")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("# Made by `jobctl import` from stdin. ")
    assert "script: train.py" in out.splitlines()
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (b"\xff\xfe", "error: stdin is not UTF-8 text (byte 0)"),
        (b"torchrun\0a.py", "error: stdin holds a NUL byte"),
        (b"#" * (1 << 20) + b"\n", "error: stdin is larger than 1 MiB"),
        (b"", "error: stdin: there is nothing in it"),
    ],
)
def test_what_stdin_cannot_be(run: Any, stdin: bytes, message: str) -> None:
    code, out, err = run("-", stdin=stdin)
    assert (code, out, err.splitlines()[0]) == (2, "", message)


def test_binary_files_are_refused(run: Any) -> None:
    Path("a").write_bytes(b"\x7fELF\x02\xff")
    Path("b").write_bytes(b"torchrun\0")
    assert run("a")[::2] == (
        2,
        "error: `a` is not UTF-8 text (byte 5)\nhint: save it as UTF-8, or name the right file\n",
    )
    assert run("b")[::2] == (
        2,
        "error: `b` holds a NUL byte: it is a binary file\nhint: name the right file\n",
    )


def test_arguments_that_are_no_text_are_refused(run: Any) -> None:
    code, _, err = run("--", "torchrun", "train.py", "\udcff")
    assert (code, err.splitlines()[0]) == (2, "error: word 3 of the command is not UTF-8 text")


def test_output_into_a_directory_and_to_stdout(run: Any) -> None:
    command = ("--", "torchrun", "--nnodes=2", "--master_addr=gpu01", "train.py")
    assert run("-o", "new/vit.yaml", *command)[0] == 0
    assert sorted(path.name for path in Path("new").iterdir()) == ["hosts.txt", "vit.yaml"]
    Path("there").mkdir()
    assert run("-o", "there", *command)[0] == 0
    assert "name: there\n" in Path("there", "job.yaml").read_text()
    code, out, _ = run("-o", "-", *command)
    assert (code, out.splitlines()[-2:]) == (0, ["#   gpu01", "#   # 1 more host is needed: nothing names it"])


def test_nothing_is_written_where_one_file_exists(run: Any) -> None:
    Path("hosts.txt").write_text("mine\n")
    code, _, err = run("-o", "job.yaml", "--", "torchrun", "--nnodes=2", "--master_addr=gpu01", "train.py")
    assert (code, err) == (2, "error: hosts.txt already exists\nhint: nothing was written\n")
    assert [path.name for path in Path().iterdir()] == ["hosts.txt"]
    assert run("-o", "job.yaml", "--", "torchrun", "train.py")[0] == 0


def test_a_place_that_cannot_be_written(run: Any) -> None:
    Path("file").write_text("")
    code, _, err = run("-o", "file/job.yaml", "--", "torchrun", "train.py")
    assert (code, err.startswith("error: ")) == (2, True)


def test_import_does_not_pay_for_what_it_does_not_use(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from jobctl.main import main\n"
        "try:\n    main(['import', '--', 'torchrun', 'train.py'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'fabric', 'docker', 'jinja2', 'rich', 'torch'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "HEAVY []"
