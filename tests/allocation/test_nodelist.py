"""The machines of an allocation, as Slurm writes them."""

from __future__ import annotations

import pytest

from jobctl.jobspec.allocation.nodelist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("s1", ["s1"]),
        ("s[1-3]", ["s1", "s2", "s3"]),
        ("gpu[008-010,12],login", ["gpu008", "gpu009", "gpu010", "gpu12", "login"]),
        ("r[1-2]n[01-02]-ib", ["r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"]),
    ],
)
def test_names_of_machines(text: str, names: list[str]) -> None:
    assert expand(text) == names
