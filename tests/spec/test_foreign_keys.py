"""Keys of other tools: what is said of them is right, and none of them is ours."""

from __future__ import annotations

import re
from pathlib import Path

from jobctl.jobspec.spec.load import load_spec
from jobctl.jobspec.spec.reading.foreign_keys import HINTS
from jobctl.jobspec.spec.reference import keys_at

SPEC = "name: demo\nframework: torch\nimage: i\ncheckpoint: /c\n"


def test_none_is_a_key_of_the_language() -> None:
    assert set(HINTS) & set(keys_at(())) == set()


def test_what_a_hint_says_to_write_is_valid(tmp_path: Path) -> None:
    wrong = {}
    path = tmp_path / "job.yaml"
    for snippet in sorted({text for hint in HINTS.values() for text in re.findall(r"`(\w+: [^`]+)`", hint)}):
        more = "" if snippet.startswith("nodes") else "nodes: 2\n"
        path.write_text(f"{SPEC}command: [train]\n{more}{snippet}\n")
        errors = [one.message for one in load_spec(path, environ={}).diagnostics if one.severity == "error"]
        if errors:
            wrong[snippet] = errors
    assert wrong == {}


def test_a_hint_names_keys_that_there_are() -> None:
    named = {word for hint in HINTS.values() for word in re.findall(r"`([a-z_]+)`", hint)}
    targets = {"compose", "ssh", "kubernetes", "slurm"}
    parts = {key for part in keys_at(()) for key in keys_at((part,))}
    assert named - targets - set(keys_at(())) - parts == set()
