"""Programs in a framework's own words: `check --fitness` sends them to hosts, where they run in the job's image.

Python 3.8 or later, and the framework; nothing else of jobctl. `…_devices` measures the devices of a host, `…_sum` is one
rank of a sum over all ranks: it reads one JSON object from its input, and prints one.
"""

from __future__ import annotations

from importlib.resources import files


def text_of(name: str) -> str:
    """Return the text of a program."""
    return files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8")
