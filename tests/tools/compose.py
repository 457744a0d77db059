"""Docker Compose v2 for tests: the one on PATH, or Debian's, in a cache outside the checkout.

Debian 12 has none; the plugin of Debian 13 is one static binary that runs there too. It is fetched with apt's own
verification and lists of its own: the system's package sources stay as they are. Run it to fill the cache:
`python tests/tools/compose.py`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PLUGIN = "usr/libexec/docker/cli-plugins/docker-compose"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian trixie main\n"


class ToolMissing(Exception):
    """A tool that cannot be had here, and why."""


def compose() -> tuple[str, ...]:
    """Return the argv that starts Compose v2. Raises ToolMissing."""
    if shutil.which("docker") and _works(("docker", "compose")):
        return ("docker", "compose")
    return (str(_cached()),)


def _cached() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jobctl-tests"
    cache.mkdir(parents=True, exist_ok=True)
    binary = cache / "docker-compose"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (binary.exists() and _works((str(binary),))):
            _fetch(cache / "apt", binary)
    return binary


def _fetch(work: Path, binary: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    for directory in ("lists/partial", "archives/partial", "parts"):
        (work / directory).mkdir(parents=True)
    (work / "sources.list").write_text(SOURCE)
    options = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": work / "parts",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work,
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
    _run([*apt, "update"], work)
    _run([*apt, "download", "docker-compose"], work)
    (package,) = work.glob("docker-compose_*.deb")
    _run(["dpkg", "-x", str(package), str(work / "unpacked")], work)
    shutil.copy2(work / "unpacked" / PLUGIN, binary)
    shutil.rmtree(work)


def _works(argv: Sequence[str]) -> bool:
    done = subprocess.run([*argv, "version", "--short"], capture_output=True, text=True, check=False)
    major = done.stdout.strip().lstrip("v").split(".")[0]
    return done.returncode == 0 and major.isdigit() and int(major) >= 2


def _run(argv: Sequence[str], cwd: Path) -> None:
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"Docker Compose v2 is not installed and cannot be fetched: {error}") from error
    if done.returncode:
        raise ToolMissing(f"Docker Compose v2 is not installed and cannot be fetched: {done.stderr.strip()}")


if __name__ == "__main__":
    try:
        print(*compose())
    except ToolMissing as error:
        sys.exit(str(error))
