"""What PyTorch's launcher is told beside who the members are."""

from __future__ import annotations

import pytest

from .made import BASE, make


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", []),
        ("rendezvous: {timeout: 30m}", ["timeout=1800"]),
        ("rendezvous: {timeout: 500ms}", ["timeout=1"]),
        # torchrun goes by the last of two.
        ("rendezvous: {timeout: 30m}\ntorch: {torchrun: [--rdzv-conf, timeout=5]}", ["timeout=1800", "timeout=5"]),
    ],
)
def test_how_long_torchrun_waits_for_the_others(text: str, told: list[str]) -> None:
    start = make(f"nodes: 2\n{text}", "a\nb\n").nodes[0].launch.start
    assert [start[number + 1] for number, word in enumerate(start) if word == "--rdzv-conf"] == told


@pytest.mark.parametrize(
    ("runs", "kept_out"),
    [
        ("script: train.py", True),
        ("command: [python3, train.py]", True),
        ("command: [torchrun, train.py]\nper: node", False),
    ],
)
def test_torchrun_takes_no_options_from_variables_and_one_of_the_users_own_does(runs: str, kept_out: bool) -> None:
    (node,) = make("", "a\n", base=BASE.replace("script: train.py", runs)).nodes
    assert ("PET_RDZV_ENDPOINT" in node.launch.scrub) == kept_out
