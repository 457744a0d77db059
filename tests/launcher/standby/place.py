"""One rank that waits, without a launcher."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from jobctl.jobspec.launcher.standby.guard import ParkedRank
from jobctl.jobspec.launcher.standby.messages import GuardPreparation


class Place:
    """A folder with packages, a script, and what is needed to park it."""

    def __init__(self, root: Path, python: str, hook: Path) -> None:
        self.root, self.python, self.hook = root, python, hook
        self.packages = root / "site-packages"
        self.packages.mkdir()
        self.environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.packages), "PLACE": "1"}
        self.install("framework", "")

    def install(self, name: str, text: str) -> None:
        """Install a module."""
        (self.packages / f"{name}.py").write_text(text)

    def park(self, script: str = "", *imports: list[str]) -> ParkedRank:
        """Return a rank of a script that waits."""
        path = self.root / "train.py"
        path.write_text(script)
        self.argv = [self.python, "-u", str(path)]
        task = GuardPreparation(str(self.hook), imports or [["framework"]], [*self.argv], -1)
        rank = ParkedRank(task, dict(self.environ))
        rank.await_imports()
        return rank

    def run(self, rank: ParkedRank, **changes: str) -> tuple[str, int]:
        """Have a rank go on; return what it prints, and its exit code."""
        cold = str(self.root / "0.cold")
        assert rank.take(self.argv, {**self.environ, **changes}, cold) is None
        with open(rank.reading) as pipe:
            said = pipe.read()
        return said, rank.child.wait()

    def cold(self) -> str:
        """Return what the same script prints after a cold start."""
        done = subprocess.run(self.argv, env=self.environ, capture_output=True, text=True, check=True)
        return done.stdout

    def why(self) -> str | None:
        """Return why the rank went on cold, None if it did not."""
        path = self.root / "0.cold"
        return path.read_text() if path.exists() else None
