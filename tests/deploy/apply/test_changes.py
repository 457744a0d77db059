"""What a changed spec says of itself: keys, old and new values, and what each makes necessary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.changes import Changed, causes, changed, differences, with_value
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.spec.model import as_written

BASE = "name: a\nframework: torch\nmodule: train\nnodes: 2\n"


def dump(text: str) -> dict[str, Any]:
    loaded = load_text(Path("job.yaml"), BASE + text if "nodes:" not in text else text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    return dict(as_written(loaded.spec))


def said(old: str, new: str) -> list[str]:
    """Return the lines that two specs differ by."""
    one, other = dump(old), dump(new)
    return [str(changed(path, one, other)) for path in differences(one, other)]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("", "# a comment\nx-note: 1\nversion: 1\n", []),
        ("", "recovery: {max_restarts: 5}", ["recovery.max_restarts: 3 → 5"]),
        ("env: {X: a, Y: b}", "env: {X: c, Z: ''}", ["env.X: a → c", 'env.Z: unset → ""', "env.Y: b → unset"]),
        ("", "recovery: {host_timeout: 1m}", ["recovery.host_timeout: 30s → 60s"]),
        ("", "recovery: {hang_timeout: auto}", ["recovery.hang_timeout: off → auto"]),
        ("recovery: {hang_timeout: auto}", "recovery: {hang_timeout: 10m}", ["recovery.hang_timeout: auto → 600s"]),
        ("recovery: {standby: off}", "", ["recovery.standby: off → auto"]),
        ("", "recovery: {standby: {import: [a]}}", ['recovery.standby: auto → {"import": ["a"]}']),
        ("recovery: {standby: {import: [a]}}", "recovery: {standby: {import: [b]}}",
         ['recovery.standby.import: ["a"] → ["b"]']),
        ("volumes: ['a:/a']", "volumes: []",
         ['volumes: [{"type": "volume", "source": "a", "target": "/a", "read_only": false}] → []']),
        ("args: [--lr, 1]", "args: [--lr, 2]", ['args: ["--lr", "1"] → ["--lr", "2"]']),
        ("", BASE.replace("nodes: 2", 'nodes: "2:4"'), ["nodes: 2 → 2:4"]),
        ("checkpoint: /a", "checkpoint: {dir: /b, shared: false}", ["checkpoint.dir: /a → /b", "checkpoint.shared: true → false"]),
        ("env: {API_TOKEN: geheim}", "env: {API_TOKEN: hush}", ["env.API_TOKEN: another value, which is not shown"]),
        ("args: [--api-key, geheim, --lr, 1]", "args: [--lr, 2]",
         ['args: ["(not shown)", "(not shown)", "--lr", "1"] → ["--lr", "2"]']),
        ("args: [--hub_token=geheim, --lr, 1]", "args: [--hub_token=geheim, --lr, 2]",
         ['args: ["(not shown)", "--lr", "1"] → ["(not shown)", "--lr", "2"]']),
        ("args: [--api-key, geheim]", "args: [--api-key, hush]", ["args: another value, which is not shown"]),
        ("args: [--tokenizer, gpt2, --lr, 0.1]", "args: [--tokenizer, gpt2, --lr, 0.2]",
         ['args: ["--tokenizer", "gpt2", "--lr", "0.1"] → ["--tokenizer", "gpt2", "--lr", "0.2"]']),
        ("env: {PROXY: 'http://me:geheim@p:1'}", "env: {PROXY: 'http://me:geheim@p:2'}", ["env.PROXY: http://…@p:1 → http://…@p:2"]),
        ("env: {X: a}", 'env: {X: "\\e[2J"}', ['env.X: a → "\\u001b[2J"']),
        ("env: {X: a}", f"env: {{X: {'b' * 300}}}", [f"env.X: a → {'b' * 199}…"]),
    ],
)  # fmt: skip
def test_a_change_is_told_by_its_key_and_values(old: str, new: str, lines: list[str]) -> None:
    assert said(old, new) == lines
    assert "geheim" not in " ".join(lines)


def test_a_secret_inside_of_a_key_that_was_not_there_is_hidden() -> None:
    one = {"build": None}
    other = {"build": {"context": ".", "args": {"HF_TOKEN": "geheim", "LR": "1"}}}
    line = str(changed(("build",), one, other))
    assert line == 'build: unset → {"context": ".", "args": {"HF_TOKEN": "(not shown)", "LR": "1"}}'


def test_what_comes_of_a_change_is_told() -> None:
    def line(**effect: Any) -> str:
        return Changed("k", 1, 2, **effect).line

    assert line() == "k: 1 → 2: nothing to restart"
    assert line(nodes=(0, 1)) == "k: 1 → 2: restarts node 0, 1"
    assert line(generation=True) == "k: 1 → 2: a new generation"
    assert line(later=True) == "k: 1 → 2: nothing to restart, it holds from the next generation on"


def test_the_cause_of_a_restart_is_the_key_that_the_node_depends_on() -> None:
    found = (Changed("a", 1, 2, (0,)), Changed("b", 1, 2, (1,)), Changed("c", 1, 2))
    assert causes(found, {0}) == "a: 1 → 2"
    assert causes(found, {0, 1}) == "a: 1 → 2; b: 1 → 2"
    assert causes(found, {2}) == (
        "its container was made with other settings or data, by another version of jobctl or by an interrupted `up`"
    )
    assert causes(None, {0}) == "the spec changed"
    assert causes(tuple(Changed(str(n), 1, 2, (0,)) for n in range(5)), {0}).endswith("2: 1 → 2; and 2 more")


def test_an_old_value_can_be_put_back() -> None:
    spec = {"env": {"X": "a"}, "recovery": {"max_restarts": 5, "window": None}, "checkpoint": None}
    assert with_value(spec, ("env", "X"), None) == {**spec, "env": {}}
    assert with_value(spec, ("recovery", "max_restarts"), 3)["recovery"] == {"max_restarts": 3, "window": None}
    assert with_value(spec, ("checkpoint",), {"dir": "/a"})["checkpoint"] == {"dir": "/a"}
