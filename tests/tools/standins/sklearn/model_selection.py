"""The split of the examples: of each label the same share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def train_test_split(x: Any, y: Any, *, test_size: float, random_state: int, stratify: Any) -> tuple[Any, ...]:
    order = np.random.RandomState(random_state).permutation(len(stratify))
    wanted = math.ceil(test_size * len(stratify))
    ranked = order[np.argsort(stratify[order], kind="stable")]  # label by label
    test = np.zeros(len(stratify), bool)
    test[ranked[np.linspace(0, len(ranked) - 1, wanted).round().astype(int)]] = True
    train = order[~test[order]]
    chosen = order[test[order]]
    return x[train], x[chosen], y[train], y[chosen]
