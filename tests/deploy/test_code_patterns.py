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


def sent(root: Path, *outputs: str, exclude: tuple[str, ...] = (), include: tuple[str, ...] = ()) -> set[str]:
    for name in (*FILES, ".env"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    found = select(Code(str(root), "/workspace", exclude, include=include), "job", outputs, None)
    return {file.name for file in found.files}


@pytest.mark.parametrize("outputs", ["models/", "models", "./models/"])
def test_an_output_is_the_path_that_it_names_and_no_other(tmp_path: Path, outputs: str) -> None:
    assert set(FILES) - sent(tmp_path, outputs) == {"models/step-1.pt"}


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
    assert set(FILES) - sent(tmp_path, exclude=exclude) == without


@pytest.mark.parametrize(
    ("include", "private"), [((".env",), True), (("/.env",), True), (("",), False), (("/",), False)]
)
def test_what_is_private_is_sent_only_where_a_pattern_names_it(
    tmp_path: Path, include: tuple[str, ...], private: bool
) -> None:
    """A variable that is not set makes a pattern of nothing."""
    assert (".env" in sent(tmp_path, include=include)) is private
