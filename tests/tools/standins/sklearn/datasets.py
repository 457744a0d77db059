"""The data sets of the examples; of the digits only the first, where the variable STANDIN_DIGITS says how many."""

from __future__ import annotations

import csv
import gzip
import itertools
import os
from typing import Any

import numpy as np

from . import data


def load_digits(*, return_X_y: bool) -> tuple[Any, Any]:
    assert return_X_y
    with gzip.open(data("digits.csv.gz"), "rt") as file:
        rows = itertools.islice(csv.reader(file), int(os.environ.get("STANDIN_DIGITS", "1797")))
        table = np.array(list(rows), dtype=float)
    return table[:, :-1], table[:, -1].astype(int)


def load_breast_cancer(*, return_X_y: bool) -> tuple[Any, Any]:
    assert return_X_y
    with data("breast_cancer.csv").open() as file:
        table = np.array(list(csv.reader(file))[1:], dtype=float)
    return table[:, :-1], table[:, -1].astype(int)
