"""Stands for scikit-learn where an example is trained for what it does with its framework: the same data, two seconds sooner.

Its own imports cost a process as much as those of PyTorch. The data are read from the real one, which
the example of PyTorch has in tests/cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path


def data(name: str) -> Path:
    """Return a file of the real scikit-learn's."""
    for folder in sys.path:
        path = Path(folder, "sklearn", "datasets", "data", name)
        if path.exists():
            return path
    raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
