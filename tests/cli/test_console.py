"""What reaches a terminal of what others wrote."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from jobctl import console
from jobctl.views import failure

HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x1b[31md\x1b[0me\x9b1;1Hf\x1bcg\bh\ri\x7fj\tk"


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both streams as one terminal; returns what was written there."""
    raw = io.BytesIO()
    stream = Terminal(raw, "utf-8", write_through=True)
    monkeypatch.setattr(console, "sys", SimpleNamespace(stdout=stream, stderr=stream))
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return raw.getvalue


def test_words_bring_no_escape_sequence_to_a_terminal(terminal: Any) -> None:
    console.out(HOSTILE)
    console.say(HOSTILE)
    assert terminal() == b"abcdefghij\tk\n" * 2


def test_our_own_colours_stay(terminal: Any) -> None:
    console.error(HOSTILE)
    assert terminal() == b"\x1b[31merror\x1b[0m: abcdefghij\tk\n"


def test_words_of_others_cannot_be_taken_for_our_colours(terminal: Any) -> None:
    """`8` hides all that follows. The characters around it marked colours."""
    ours = console.style("x", "red").replace(console._MARK, "")
    console.say(f"\ufdd08\ufdd1hidden\ufdd2 {ours}")
    assert b"\x1b" not in terminal()


@pytest.mark.parametrize(
    ("when", "environ", "on_terminal", "in_pipe"),
    [
        ("auto", {}, True, False),
        ("auto", {"TERM": "dumb"}, False, False),
        ("auto", {"NO_COLOR": "1"}, False, False),
        ("auto", {"NO_COLOR": ""}, True, False),  # as if it were not set
        ("auto", {"FORCE_COLOR": "1"}, True, True),
        ("auto", {"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ("auto", {"FORCE_COLOR": "0"}, True, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ("always", {"NO_COLOR": "1"}, True, True),
        ("never", {"FORCE_COLOR": "1"}, False, False),
    ],
)
@pytest.mark.usefixtures("terminal")
def test_what_decides_on_colours(
    when: str, environ: dict[str, str], on_terminal: bool, in_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    console.choose_colour(console.Colour(when))
    found = console.colourful(console.sys.stdout), console.colourful(io.StringIO())
    console.choose_colour(console.Colour.auto)
    assert found == (on_terminal, in_pipe)


def test_of_a_log_colours_alone_reach_a_terminal(terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    console.out_log("node0 rank1 | ", HOSTILE.encode() + b" \xff\x80")
    assert terminal() == b"node0 rank1 | abc\x1b[31md\x1b[0mefghij\tk \\xff\\x80\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    console.out_log("", HOSTILE.encode())
    assert terminal().endswith(b"\nabcdefghij\tk\n")


def test_a_stream_whose_reader_has_gone_ends_though_it_says_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """`logs -f | head -1` of a job that prints nothing would go on for ever."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        console.out("a line")
        console.pass_on()
        assert os.read(reader, 100) == b"a line\n"
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            console.pass_on()


def test_a_log_goes_byte_for_byte_where_there_is_no_terminal(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    console.out_log("node0 rank1 | ", HOSTILE.encode() + b"\xff")
    assert capfdbinary.readouterr().out == b"node0 rank1 | " + HOSTILE.encode() + b"\xff\n"


@pytest.mark.parametrize(("said", "code"), [(console.out_json_line, "timeout"), (console.out_json, None)])
def test_a_stream_that_fails_ends_with_a_line_that_says_so(said: Any, code: str | None, capsys: Any) -> None:
    """What one document has to report it says itself; the lines of a stream know nothing of its end."""

    @failure.command
    def logs(output: Any) -> None:
        said({"line": "one"})
        raise failure.Failed("the time is over", 124)

    with pytest.raises(typer.Exit):
        logs(output=SimpleNamespace(value="json"))
    documents = capsys.readouterr().out
    last = {"error": {"code": code, "message": "the time is over", "hint": None, "exit_code": 124}}
    lines = documents.splitlines()
    assert json.loads(lines[-1]) == last if code else json.loads(documents) == {"line": "one"}


def test_json_says_what_was_written_and_nothing_that_a_terminal_obeys(terminal: Any) -> None:
    console.out_json_line({"line": HOSTILE})
    assert json.loads(terminal()) == {"line": HOSTILE}
    assert not any(byte < 32 for byte in terminal()[:-1])
    assert not any(0x7F <= ord(character) <= 0x9F for character in terminal().decode())


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["--version", "up --help", "list -o json", "validate /dev/null"])
def test_a_full_disk_behind_stdout_is_an_error_with_its_place(arguments: str, unbuffered: str, tmp_path: Path) -> None:
    """Whether Python writes at once or as it ends, and whether a command began or typer alone has printed."""
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered, "JOBCTL_STATE_DIR": str(tmp_path)}
    argv = [sys.executable, "-m", "jobctl", *arguments.split()]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environ)
    assert (ran.returncode, ran.stderr) == (
        2,
        "error: standard output: No space left on device\nhint: make room there\n",
    )
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr


def test_a_reader_that_has_gone_ends_a_command_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environ = {**os.environ, "JOBCTL_STATE_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "jobctl", "list", "-o", "json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environ,
    )
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_ctrl_c_that_a_library_makes_another_error_of_interrupts(tmp_path: Path) -> None:
    """The core of pydantic does while classes of the spec are made, which takes seconds on a busy machine."""
    script = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "jobctl.jobspec.spec.model":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as error:
                raise RuntimeError("SchemaError: KeyboardInterrupt") from error
sys.meta_path.insert(0, Interrupts())
sys.argv = ["jobctl", "validate"]
import jobctl.__main__
jobctl.__main__.start()
"""
    (tmp_path / "job.yaml").write_text("name: small\n")
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")
