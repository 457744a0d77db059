"""Cases in text files: files that are there before, a command line, and what it prints."""

from __future__ import annotations

import re


def split_case(text: str, prompt: str = "$ ") -> tuple[dict[str, str], str, str]:
    """Return the files, the command line and the expected output of a case."""
    inputs, _, output = text.partition(f"\n{prompt}")
    command, _, expected = output.partition("\n")
    parts = re.split(r"^--- (.+)\n", inputs + "\n", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)), command, expected
