"""The data sets of the examples."""

from __future__ import annotations

import csv
import gzip
from typing import Any

import numpy as np

from . import data


def load_digits(*, return_X_y: bool) -> tuple[Any, Any]:
    assert return_X_y
    with gzip.open(data("digits.csv.gz"), "rt") as file:
        table = np.array(list(csv.reader(file)), dtype=float)
    return table[:, :-1], table[:, -1].astype(int)


def load_breast_cancer(*, return_X_y: bool) -> tuple[Any, Any]:
    assert return_X_y
    with data("breast_cancer.csv").open() as file:
        table = np.array(list(csv.reader(file))[1:], dtype=float)
    return table[:, :-1], table[:, -1].astype(int)
