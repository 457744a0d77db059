"""The scripts of docs/writing-training-scripts.md are those of examples/minimal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples" / "minimal").glob("train_*.py"))
PAGE = (ROOT / "docs" / "writing-training-scripts.md").read_text(encoding="utf-8")
LONGEST = 60  # lines of a script, so that it can be read at one look


def test_the_page_shows_each_script_as_it_is() -> None:
    shown = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert sorted(shown) == sorted(script.read_text(encoding="utf-8") for script in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_and_compiles(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    compile(text, str(script), "exec")
    assert len(text.splitlines()) <= LONGEST
    assert "JOBCTL_CHECKPOINT_DIR" in text
    assert "JOBCTL_PROGRESS_FILE" in text
