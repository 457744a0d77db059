"""The pictures of the documentation are small, and say nothing about the machine that made them (docs/images/make.py)."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

PICTURES = [
    path for path in (Path(__file__).parents[2] / "docs" / "images").iterdir() if path.suffix in (".svg", ".png")
]
LARGEST = 200_000  # bytes


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_names_no_place(picture: Path) -> None:
    content = picture.read_bytes()
    assert len(content) <= LARGEST
    assert re.findall(rb"/(?:root|home|tmp|Users|var|work)/[\w./-]*", content) == []


def test_a_drawn_session_names_no_other_host_than_localhost() -> None:
    drawing = next(path for path in PICTURES if path.name == "session.svg").read_text(encoding="utf-8")
    # A line is drawn in pieces, of which each has its own colour.
    words = " ".join(html.unescape(piece) for piece in re.findall(r">([^<]*)<", drawing)).replace("\xa0", " ")
    assert set(re.findall(r"\bnode \d+ on ([\w.-]+)", words)) == {"localhost"}
    rows = re.findall(r"\b\d+ +(?:trainer|server) +([\w.-]+)", words)
    assert set(rows) == {"localhost"}
    assert re.findall(r"\w+@[\w.-]+|(?<![\w.])\d+\.\d+\.\d+\.\d+(?![\w.])|(?<!\S)~?/[\w.-]+/\S*", words) == []


def test_there_are_pictures() -> None:
    assert {path.name for path in PICTURES} >= {"session.svg", "report.png", "ui.png"}
