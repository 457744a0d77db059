"""Which files `code.exclude`, `code.include` and `outputs` mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobctl.jobspec.deploy.store.code import select
from jobctl.jobspec.plan.sent import Code

FILES = (
    "net/models/layers.py",
    "net/data/load.py",
    "data/big.bin",
    "models/step-1.pt",
    "keep.log",
    "a.log",
    "train.py",
)
NEVER = (".env", "net/.env", "net/.ssh/id", "net/.git/config", "net/__pycache__/a.pyc")  # sent where `include` names it


def sent(root: Path, *outputs: str, exclude: tuple[str, ...] = (), include: tuple[str, ...] = ()) -> set[str]:
    for name in (*FILES, *NEVER):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    found = select(Code(str(root), "/workspace", exclude, include=include), "job", outputs, None)
    return {file.name for file in found.files}


@pytest.mark.parametrize("outputs", ["models/", "models", "./models/"])
def test_an_output_is_the_path_that_it_names_and_no_other(tmp_path: Path, outputs: str) -> None:
    assert set(FILES) - sent(tmp_path, outputs) == {"models/step-1.pt"}


def test_what_looks_like_a_pattern_of_outputs_is_no_code_at_any_depth(tmp_path: Path) -> None:
    """It keeps no output, which `validate` says; but what processes write there may be large."""
    assert set(FILES) - sent(tmp_path, "*.pt", "*.log") == {"models/step-1.pt", "keep.log", "a.log"}


def test_checkpoints_are_no_code_by_whatever_link_they_are_named(tmp_path: Path) -> None:
    root, link = tmp_path / "code", tmp_path / "link"
    link.symlink_to(root)
    (root / "kept").mkdir(parents=True)
    (root / "kept" / "step-1.pt").write_text("x")
    assert select(Code(str(root), "/workspace", ()), "job", (), str(link / "kept")).files == ()


@pytest.mark.parametrize(
    ("exclude", "without"),
    [
        (("data/",), {"data/big.bin", "net/data/load.py"}),
        (("/data",), {"data/big.bin"}),
        (("/data/",), {"data/big.bin"}),
        (("*.log", "!keep.log"), {"a.log"}),
        (("*", "!net/**"), {*FILES} - {"net/models/layers.py", "net/data/load.py"}),
        (("", "/", " "), set()),
    ],
)
def test_what_is_excluded(tmp_path: Path, exclude: tuple[str, ...], without: set[str]) -> None:
    assert {*FILES, *NEVER} - sent(tmp_path, exclude=exclude) == {*without, *NEVER}


@pytest.mark.parametrize(
    ("include", "private"), [((".env",), True), (("/.env",), True), (("",), False), (("/",), False)]
)
def test_what_is_private_is_sent_only_where_a_pattern_names_it(
    tmp_path: Path, include: tuple[str, ...], private: bool
) -> None:
    """A variable that is not set makes a pattern of nothing."""
    assert (".env" in sent(tmp_path, include=include)) is private


@pytest.mark.parametrize("pattern", ["data/b[x9-0-i]g.bin", "data/b[^z-a]g.bin"])
def test_a_range_that_runs_backwards_has_no_character(tmp_path: Path, pattern: str) -> None:
    assert set(FILES) - sent(tmp_path, exclude=(pattern, "a[9-0].log", "a[z-a]log")) == {"data/big.bin"}
