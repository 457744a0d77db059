"""A real browser, for tests that cannot do without: `browse` is a fixture."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

# A profile of its own each time, and nothing that it would like to fetch meanwhile.
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)

Browse = Callable[..., subprocess.CompletedProcess[str]]


def chromium() -> str:
    """Return the path of Chromium; the test skips where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        why = "chromium is not installed (apt-get install chromium)"
        if os.environ.get("JOBCTL_TOOLS") == "required":
            pytest.fail(why)
        pytest.skip(why)
    return found


@pytest.fixture(scope="session")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Browse:
    """Open a file or an address in Chromium; return the document as it is then, with what was logged on stderr."""
    found = chromium()

    def dump(page: Path | str, *options: str) -> subprocess.CompletedProcess[str]:
        profile = tmp_path_factory.mktemp("profile")
        address = page.as_uri() if isinstance(page, Path) else page
        argv = [found, *OPTIONS, f"--user-data-dir={profile}", *options, "--dump-dom", address]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)

    return dump
