"""Modules that stand for what examples import beside their framework, for processes that have PATH on their PYTHONPATH."""

from pathlib import Path

PATH = str(Path(__file__).parent)
