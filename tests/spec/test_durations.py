"""Durations as text: each form has one function, and what a spec has is read again as it was."""

from __future__ import annotations

import pytest

from jobctl.jobspec.launcher.telling.words import in_words
from jobctl.jobspec.spec.durations import (
    for_go,
    for_slurm,
    in_all_units,
    in_one_unit,
    parse_duration,
    parse_slurm,
)


@pytest.mark.parametrize(
    ("seconds", "one", "all_units", "go", "slurm"),
    [
        (0, "0s", "0s", "0s", "0-00:00:00"),
        (1.5, "1.5s", "1s", "1500ms", "0-00:00:02"),
        (59, "59s", "59s", "59s", "0-00:00:59"),
        (90, "90s", "1m30s", "90s", "0-00:01:30"),
        (5400, "90m", "1h30m", "5400s", "0-01:30:00"),
        (86400, "24h", "1d", "86400s", "1-00:00:00"),
        (1234567, "1234567s", "14d6h56m7s", "1234567s", "14-06:56:07"),
    ],
)
def test_forms(seconds: float, one: str, all_units: str, go: str, slurm: str) -> None:
    assert (in_one_unit(seconds), in_all_units(seconds), for_go(seconds), for_slurm(seconds)) == (
        one,
        all_units,
        go,
        slurm,
    )
    assert parse_duration(in_one_unit(seconds)) == seconds
    assert parse_duration(in_all_units(seconds)) == int(seconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.04, "0 s"),
        (0.42, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3725, "1 h 2 min"),
        (90000, "1 d 1 h"),
        (86400 * 12, "12 d"),
    ],
)
def test_words(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("30:15", 1815),
        ("2:00:00", 7200),
        ("1-12", 129600),
        ("1-0:30", 88200),
        ("1-00:00:01", 86401),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("1:2:3:4", None),
        ("", None),
    ],
)
def test_times_of_slurm(text: str, seconds: float | None) -> None:
    assert parse_slurm(text) == seconds
