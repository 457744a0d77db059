"""A copy of the tree in which one bug at a time is planted, and the tests are run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .patches import ROOT, Mutant

LIMIT = 300.0  # seconds for the test of one bug; a test that hangs by a bug is no test that catches it
ALL = 3600.0  # seconds for all tests without a bug
TIDY = 60.0  # seconds in which a run that is interrupted ends what it has started

_OUTCOME = re.compile(r"^(tests/\S+?\.py::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE)
_NOT_FOUND = re.compile(r"^ERROR: not found: \S*?(tests/\S+?\.py::.+)$", re.MULTILINE)


class Workshop:
    """A copy of what git knows of the tree, importable as `jobctl`, without an installation."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.path = folder / "tree", folder / "path"
        listed = _run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT)
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name, follow_symlinks=False)
        self._lay_out()
        # By the text and not by time and size, which a planted bug may leave as they were.
        compile_all = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
        _run([*compile_all, str(self.path), str(self.tree / "tests")], folder)

    def _lay_out(self) -> None:
        """Make the packages of pyproject.toml out of links to the folders of the copy."""
        project = tomllib.loads((self.tree / "pyproject.toml").read_text(encoding="utf-8"))
        folders = project["tool"]["setuptools"]["package-dir"]
        for package, folder in sorted(folders.items()):
            place = self.path.joinpath(*package.split("."))
            if "." in package:
                place.symlink_to(self.tree / folder)
                continue
            place.mkdir(parents=True)
            for entry in (self.tree / folder).iterdir():
                (place / entry.name).symlink_to(entry)

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[str | None]:
        """Have a bug in the copy meanwhile; yields why it does not apply, None if it does."""
        before = {file: (self.tree / file).read_bytes() for file in mutant.files if (self.tree / file).is_file()}
        try:
            problem = next(filter(None, (hunk.misfit(self.tree) for hunk in mutant.hunks)), None)
            if problem is None:
                for hunk in mutant.hunks:
                    hunk.apply(self.tree)
            yield problem and problem.splitlines()[0]
        finally:
            for file, content in before.items():
                (self.tree / file).write_bytes(content)

    def outcomes(self, tests: Iterable[str]) -> dict[str, str]:
        """Run tests; return what came of each: `passed`, or why it can say nothing about a bug."""
        wanted = sorted(set(tests))
        found = dict.fromkeys(wanted, "its test was not run")
        while wanted:
            code, out = self._pytest(["-v", *wanted], ALL)
            absent = set(_NOT_FOUND.findall(out)) & set(wanted)
            if code != 4 or not absent:
                break
            found |= dict.fromkeys(absent, "its test is not there")
            wanted = [test for test in wanted if test not in absent]
        for test in wanted:
            words = {
                word for one, word in _OUTCOME.findall(out) if one == test or one.startswith((f"{test}[", f"{test}::"))
            }
            if words & {"FAILED", "ERROR"}:
                found[test] = "its test fails without the bug"
            elif "PASSED" in words:
                found[test] = "passed"
            elif words:
                found[test] = "its test is skipped here"
        return found

    def verdict(self, mutant: Mutant) -> str:
        """Say what the test of a bug makes of it."""
        with self.planted(mutant) as misfit:
            if misfit is not None:
                return f"does not apply: {misfit}"
            code, out = self._pytest(["-x", mutant.test], LIMIT)
        if code is None:
            return f"timed out after {LIMIT:g} s"
        if code in (0, 1):
            return "caught" if code else "NOT CAUGHT"
        return f"unclear: {next(iter(reversed(out.strip().splitlines())), f'pytest ended with {code}')}"

    def _pytest(self, arguments: list[str], limit: float) -> tuple[int | None, str]:
        """Run pytest in the copy; return its exit code, None when it took too long, and what it printed."""
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "--tb=no", *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("JOBCTL_", "PYTEST_"))}
        environment |= {"PYTHONPATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "1"}
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(
                argv, cwd=self.tree, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
            code = _wait(process, limit)
            out.seek(0)
            return code, out.read()


def _wait(process: subprocess.Popen[bytes], limit: float) -> int | None:
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # its fixtures end what they have started
        try:
            process.wait(TIDY)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def _run(argv: list[str], where: Path) -> str:
    return subprocess.run(argv, cwd=where, stdout=subprocess.PIPE, text=True, check=True).stdout


def timed(shop: Workshop, mutant: Mutant) -> tuple[str, float]:
    """Return what becomes of a bug, and how many seconds that took."""
    began = time.monotonic()
    return shop.verdict(mutant), time.monotonic() - began
