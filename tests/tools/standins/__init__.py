"""Modules that stand for what examples import beside their framework, for processes that have PATH on their PYTHONPATH."""

from pathlib import Path

PATH = str(Path(__file__).parent)
# A quarter of the digits in batches of a quarter: as many steps, where no test looks at the accuracy.
FEW_DIGITS, FEW = {"STANDIN_DIGITS": "450"}, "--batch-size=16"
