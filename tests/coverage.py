"""Measure which lines and branches of jobctl the tests run: `python -m tests.coverage [ARGUMENTS OF PYTEST]`.

Prints a table with a row for each package. It measures commands and supervisors too, which are processes of their own;
not what runs on hosts, nor the launcher, whose files are joined into a program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SETTINGS = """\
[run]
branch = true
source_pkgs = jobctl
parallel = true
patch = subprocess, fork, _exit
data_file = {folder}/data
"""
FIGURES = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def main(argv: list[str]) -> int:
    """Run pytest, print the table, and return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="jobctl-coverage-") as folder:
        settings = Path(folder, "settings")
        settings.write_text(SETTINGS.format(folder=folder))
        coverage = [sys.executable, "-m", "coverage"]
        code = subprocess.run([*coverage, "run", f"--rcfile={settings}", "-m", "pytest", *argv], check=False).returncode
        told = {"stdout": subprocess.DEVNULL, "check": True}
        subprocess.run([*coverage, "combine", "-q", f"--rcfile={settings}"], **told)  # type: ignore[call-overload]
        found = Path(folder, "found.json")
        subprocess.run([*coverage, "json", "-q", f"--rcfile={settings}", "-o", str(found)], **told)  # type: ignore[call-overload]
        files = {name: one["summary"] for name, one in json.loads(found.read_text())["files"].items()}
    print("\n".join(table(files)))
    return code


def table(files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table of what was covered in these files, by their packages."""
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for name, figures in files.items():
        for package in (package_of(name), "all"):
            packages[package].update({figure: figures[figure] for figure in FIGURES})
    rows = [
        f"| {name} | {one['num_statements']} | {share(one, 'covered_lines', 'num_statements')} "
        f"| {share(one, 'covered_branches', 'num_branches')} |"
        for name, one in sorted(packages.items(), key=lambda row: (row[0] == "all", row[0]))
    ]
    return ["| package | statements | lines | branches |", "|---|---|---|---|", *rows]


def package_of(name: str) -> str:
    """Return the package of a file: `cli`, or one below jobspec, two levels deep where there are so many."""
    parts = name.split(f"jobctl{os.sep}")[-1].split(os.sep)[:-1]
    if parts[:1] != ["jobspec"]:
        return "cli"
    return ".".join(parts[1:3]) or "jobspec"


def share(figures: Mapping[str, int], covered: str, every: str) -> str:
    """Return what part of all is covered."""
    return f"{100 * figures[covered] / figures[every]:.0f} %" if figures[every] else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
