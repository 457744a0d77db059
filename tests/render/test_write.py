"""`render --out` replaces what it wrote before, and leaves alone what it did not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobctl.jobspec.render import write as writing
from jobctl.jobspec.render.artefact import Artefact
from jobctl.jobspec.render.errors import RenderError
from jobctl.jobspec.render.write import LIST, Written, write


def file(path: str, text: str = "text", mode: int = 0o644) -> Artefact:
    return Artefact(path, text.encode(), mode)


def tree(directory: Path) -> dict[str, str]:
    """Files and their text, and empty folders; without the list of what was written."""
    found = {}
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if path.is_file():
            found[name] = path.read_text()
        elif not any(path.iterdir()):
            found[name + "/"] = ""
    found.pop(LIST, None)
    return found


def test_written_as_they_are(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    written = write([file("launcher.py", mode=0o755), file("gpu01/node-0.sh", "sh\r\n", 0o755), file("gpu01/x")], out)
    assert written == Written(3)
    assert (out / "gpu01" / "node-0.sh").read_bytes() == b"sh\r\n"
    assert [os.access(out / name, os.X_OK) for name in ("launcher.py", "gpu01/node-0.sh", "gpu01/x")] == [
        *(True, True, False)
    ]


def test_same_again(tmp_path: Path) -> None:
    first = write([file("a/x"), file("y")], tmp_path)
    listed = (tmp_path / LIST).read_bytes()
    assert write([file("a/x"), file("y")], tmp_path) == first
    assert (tmp_path / LIST).read_bytes() == listed


def test_nothing_stale_is_left(tmp_path: Path) -> None:
    write([file("y", "old"), file("gpu01/x"), file("gpu02/x")], tmp_path)
    assert write([file("y", "new", 0o755), file("gpu01/x")], tmp_path) == Written(2)
    assert tree(tmp_path) == {"y": "new", "gpu01/x": "text"}
    assert os.access(tmp_path / "y", os.X_OK)


def test_users_files_stay(tmp_path: Path) -> None:
    write([file("gpu01/x"), file("gpu02/x")], tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "gpu02" / "notes.txt").write_text("mine")
    write([file("gpu01/x")], tmp_path)
    assert tree(tmp_path) == {"gpu01/x": "text", "gpu02/notes.txt": "mine", "notes.txt": "mine"}


def test_stale_file_that_was_edited_stays(tmp_path: Path) -> None:
    write([file("gpu01/x"), file("gpu02/x")], tmp_path)
    (tmp_path / "gpu02" / "x").write_text("edited")
    assert write([file("gpu01/x")], tmp_path) == Written(1, kept=("gpu02/x",))
    assert tree(tmp_path) == {"gpu01/x": "text", "gpu02/x": "edited"}


def refused(artefacts: list[Artefact], out: Path) -> tuple[str, str]:
    with pytest.raises(RenderError) as caught:
        write(artefacts, out)
    return caught.value.code, str(caught.value)


def test_directory_of_another(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert refused([file("x")], tmp_path) == (
        "out-not-empty",
        f"{tmp_path} holds files that `jobctl render` did not write",
    )
    assert tree(tmp_path) == {"thesis.tex": "mine"}


def test_users_file_in_the_way(tmp_path: Path) -> None:
    write([file("x")], tmp_path)
    (tmp_path / "y").write_text("mine")
    assert refused([file("x"), file("y")], tmp_path) == (
        "file-in-the-way",
        f"{tmp_path}/y exists, and `jobctl render` did not write it",
    )
    assert tree(tmp_path) == {"x": "text", "y": "mine"}


def test_link_in_place_of_a_file(tmp_path: Path) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("mine")
    write([file("x")], out)
    (out / "x").unlink()
    (out / "x").symlink_to(precious)
    assert refused([file("x", "new")], out)[0] == "cannot-write"
    assert precious.read_text() == "mine"


def test_list_that_points_elsewhere(tmp_path: Path) -> None:
    """A directory from somebody else cannot make us delete what is not in it."""
    out, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("text")
    write([file("x")], out)
    digest = (out / LIST).read_text().split()[0]
    (out / LIST).write_text(f"{digest}  ../precious\n{digest}  {precious}\n\n\x00\n")
    write([file("y")], out)
    assert precious.read_text() == "text"


def test_out_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    assert refused([file("x")], tmp_path / "out") == (
        "cannot-write",
        f"cannot write to {tmp_path / 'out' / LIST}: Not a directory",
    )


def test_nothing_is_written_where_an_artefact_cannot_be_made(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def failing(text: str) -> Iterator[Artefact]:
        yield file("a", text)
        raise RenderError("code", "why")

    with pytest.raises(RenderError, match="why"):
        write(failing("new"), out)
    assert not out.exists()
    write([file("a", "old"), file("b")], out)
    with pytest.raises(RenderError, match="why"):
        write(failing("new"), out)
    assert tree(out) == {"a": "old", "b": "text"}


def test_repeated_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "HELD", 0)
    """What a render wrote before it failed is its own, not the user's."""

    def failing() -> Iterator[Artefact]:
        yield file("a/x")
        raise RenderError("code", "why")

    write([file("old")], tmp_path)
    with pytest.raises(RenderError, match="why"):
        write(failing(), tmp_path)
    write([file("b/x")], tmp_path)
    assert tree(tmp_path) == {"b/x": "text"}
