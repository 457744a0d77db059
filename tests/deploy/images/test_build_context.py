"""What an image is built from: what the engine gets, and the version that names it."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.images.build import packed
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store.build_context import context_of
from jobctl.jobspec.planner.code import tagged
from tests.deploy.images.built import build_of, folder_to_build, version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_to_build(tmp_path)


def members(root: Path, **changes: Any) -> dict[str, tuple[int, bytes | str | None]]:
    """Return what the engine gets: modes, and contents or where links lead."""
    content = b"".join(packed(context_of(build_of(root, **changes), "demo")))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            member.name: (member.mode, read.read() if (read := archive.extractfile(member)) else None)
            if not member.issym()
            else (member.mode, member.linkname)
            for member in archive
        }


def test_what_the_engine_gets(folder: Path) -> None:
    assert members(folder) == {
        "src": (0o755, None),
        "src/deep": (0o755, None),
        "Dockerfile": (0o644, b"FROM base:1\nCOPY . /app\n"),
        "latest": (0o777, "src/deep"),
        "run.sh": (0o755, b"#!/bin/sh\n"),
        "src/deep/train.py": (0o644, b"print(1)\n"),
    }


def test_dockerignore_decides(folder: Path) -> None:
    (folder / ".dockerignore").write_text("# all but\n*\n!src\n!.git\n!.env\n")
    assert set(members(folder)) == {
        *(".git", ".git/index", ".env", "src", "src/deep", "src/deep/train.py"),
        *(".dockerignore", ".dockerfile.863e293b8bb7"),
    }


def test_a_byte_order_mark_is_no_part_of_a_pattern(folder: Path) -> None:
    (folder / ".dockerignore").write_bytes(b"\xef\xbb\xbfrun.sh\r\nlatest\r\n")
    assert {"run.sh", "latest", "src"} & set(members(folder)) == {"src"}


def test_a_private_file_is_taken_back_by_its_own_line_only(folder: Path) -> None:
    (folder / "src" / ".env").write_text("TOKEN=2\n")
    (folder / ".dockerignore").write_text("!.env\n")
    assert {".env", "src/.env"} & set(members(folder)) == {".env"}
    left_out = context_of(build_of(folder), "demo").left_out
    assert [(one.name, one.why) for one in left_out] == [("job.yaml", "the spec"), ("src/.env", "an env file")]


def test_a_dockerfile_elsewhere_is_not_copied(folder: Path) -> None:
    (folder.parent / "Dockerfile").write_text("FROM base:2\nCOPY . /\n")
    (folder / ".dockerignore").write_text("run.sh\n")
    context = context_of(build_of(folder, dockerfile=str(folder.parent / "Dockerfile")), "demo")
    found = members(folder, dockerfile=str(folder.parent / "Dockerfile"))
    assert found[context.name] == (0o644, b"FROM base:2\nCOPY . /\n")
    assert found[".dockerignore"] == (0o644, f"run.sh\n{context.name}\n".encode())


def test_a_dockerfile_has_an_ignore_file_of_its_own(folder: Path) -> None:
    (folder / ".dockerignore").write_text("src\n")
    (folder / "Dockerfile.dockerignore").write_text("run.sh\n")
    assert {"src", "run.sh"} & set(members(folder)) == {"src"}


CHANGES: dict[str, tuple[bool, Callable[[Path], object]]] = {
    "content": (True, lambda root: (root / "src" / "deep" / "train.py").write_text("print(2)\n")),
    "name": (True, lambda root: (root / "run.sh").rename(root / "go.sh")),
    "executable": (True, lambda root: (root / "run.sh").chmod(0o644)),
    "link": (True, lambda root: ((root / "latest").unlink(), (root / "latest").symlink_to("src"))),
    "Dockerfile": (True, lambda root: (root / "Dockerfile").write_text("FROM base:2\nCOPY . /app\n")),
    "time": (False, lambda root: os.utime(root / "run.sh", (1, 1))),
    "umask": (False, lambda root: (root / "run.sh").chmod(0o775)),
    "spec": (False, lambda root: (root / "job.yaml").write_text("name: demo\nnodes: 2\n")),
    "private": (False, lambda root: (root / ".env").write_text("TOKEN=2\n")),
    "git": (False, lambda root: (root / ".git" / "index").write_text("2")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_version_follows_the_content(folder: Path, what: str) -> None:
    before, (another, change) = version(folder), CHANGES[what]
    change(folder)
    assert (version(folder) != before) is another


def test_the_version_follows_what_the_spec_says(folder: Path) -> None:
    every = [{}, {"args": (("A", "1"),)}, {"args": (("A", "2"),)}, {"target": "x"}]
    assert len({version(folder, **changes) for changes in every}) == 4
    assert version(folder, on="gpu01") == version(folder)


def test_a_file_that_is_ignored_is_no_version(folder: Path) -> None:
    (folder / ".dockerignore").write_text("*.log\n.dockerignore\n")
    before = version(folder)
    (folder / "a.log").write_text("1")
    assert version(folder) == before


@pytest.mark.parametrize(
    ("copy", "another"),
    [
        ("COPY run.sh /app/", False),
        ('COPY --chown=1:1 ["run.sh", "src", "/app/"]', True),
        ("COPY s*/deep /app/", True),
        ("COPY latest/train.py /app/", True),  # a link is followed
        ("COPY --from=base /src /app/", False),
        ("ADD https://example.com/x /x", False),
        ("COPY $WHERE /app/", True),
        ("RUN --mount=target=/src make", True),
        ("RUN --mount=type=cache,target=/root/.cache pip install x", False),
        ("COPY <<EOF /a\nx\nEOF", True),
        ("COPY \\\n  # why\n  ./run.sh \\\n /app/", False),
        ("ONBUILD COPY . /app", True),
        ("COPY run.sh /app/\nCOPY\t. /app", True),
        ("COPY\trun.sh\t/app/", False),
        ('COPY "." /app', True),
        ("COPY 'src/deep' /app", True),
    ],
)
def test_a_file_that_is_not_copied_makes_no_version(folder: Path, copy: str, another: bool) -> None:
    (folder / "Dockerfile").write_text(f"FROM base:1\n{copy}\n")
    before = version(folder)
    (folder / "src" / "deep" / "train.py").write_text("print(2)\n")
    assert (version(folder) != before) is another
    assert ("src/deep/train.py" in members(folder)) is another


@pytest.mark.parametrize("missing", ["Dockerfile", ""])
def test_nothing_to_build_from(folder: Path, missing: str) -> None:
    build = build_of(folder, context=str(folder if missing else folder / "none"))
    (folder / "Dockerfile").unlink()
    with pytest.raises(DeployError, match="Dockerfile: No such file" if missing else "no directory"):
        context_of(build, "demo")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("train", "train:0123"),
        ("team/train:1.0", "team/train:1.0-0123"),
        ("localhost:5000/train", "localhost:5000/train:0123"),
        ("localhost:5000/train:1", "localhost:5000/train:1-0123"),
        ("train:" + "x" * 128, "train:" + "x" * 123 + "-0123"),
    ],
)
def test_the_tag_has_the_version(name: str, found: str) -> None:
    assert tagged(name, "0123") == found
