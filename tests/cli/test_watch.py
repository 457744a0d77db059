"""Text that changes, where no terminal can draw it again in its place."""

from __future__ import annotations

import os
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.options import Format
from jobctl.views import status
from jobctl.views.live import draw_live, draws_live


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A job of which nothing is new after the first look."""
    same = {
        "look_on": None,
        "observe": "seen",
        "state_json": {"phase": "running"},
        "status_text": "it runs",
        "ended": False,
    }
    for name, answer in same.items():
        monkeypatch.setattr(status, name, lambda *_, answer=answer: answer)
    return SimpleNamespace(interval=0.0)


@pytest.mark.parametrize("output", [Format.text, Format.json])
def test_status_watch_tells_a_pipe_at_once_and_ends_with_its_reader(
    output: Format, looks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)  # a text that is kept back is an error here, and no endless wait
    told: list[bytes] = []

    def pause(seconds: float) -> None:
        told.append(os.read(reader, 100))
        os.close(reader)

    monkeypatch.setattr(status, "pause", pause)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        with pytest.raises(BrokenPipeError):
            status.watch_status(looks, False, output)
    assert told == [b'{"phase": "running"}\n' if output is Format.json else b"it runs\n\n"]


@pytest.mark.parametrize(("term", "drawn"), [("xterm", True), ("dumb", False), ("", True)])
def test_a_terminal_that_draws_nothing_again_gets_each_text_like_a_pipe(
    term: str, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of Emacs: it would show nothing until the job has ended."""
    ours, theirs = os.openpty()
    monkeypatch.setenv("TERM", term)
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert draws_live() is drawn
    os.close(ours)


@pytest.mark.parametrize(
    ("encoding", "shown"), [("utf-8", "é0123456…"), ("latin-1", "é01234567"), ("ascii", "\\xe901234")]
)
def test_a_line_is_cut_on_a_terminal_of_any_encoding(
    encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.openpty()
    for name, value in {"TERM": "xterm", "COLUMNS": "9", "LINES": "9"}.items():
        monkeypatch.setenv(name, value)
    with os.fdopen(theirs, "w", encoding=encoding) as stream:
        monkeypatch.setattr("sys.stdout", stream)
        draw_live(["é0123456789"])
    drawn = b""
    with suppress(OSError):  # nobody writes any more
        while data := os.read(ours, 1000):
            drawn += data
    os.close(ours)
    assert f"\x1b[2K{shown}\r\n" in drawn.decode(encoding)
