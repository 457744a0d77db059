"""Taking logs away before their folder is removed, and the folders of this machine's history where they go."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path


def collect_logs(work: Path, into: Path) -> bool:
    """Move the logs of all nodes in `work` below `into`; say whether there were any."""
    logs = [path for path in sorted(work.glob("node-*/logs")) if any(path.iterdir())]
    for path in logs:
        node = into / path.parent.name
        node.mkdir(parents=True)
        shutil.move(path, node / "logs")
        records = path.parent / "processes"  # which rank wrote which log
        if records.exists():
            shutil.move(records, node / "processes")
        launcher = path.parent / "launcher.log"
        if launcher.exists() and launcher.stat().st_size:
            shutil.move(launcher, node / "launcher.log")
    return bool(logs)


def free_folder(history: Path) -> Path:
    """Return where what is taken away now goes, below `history`."""
    return free_name(history / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ"))


def newest_folder(history: Path) -> Path | None:
    """Return where logs went the last time, None if none ever did."""
    return max(
        (path for path in history.glob("*") if path.is_dir()), key=lambda path: path.stat().st_mtime, default=None
    )


def free_name(path: Path) -> Path:
    """Return `path`, or what is like it and not there yet."""
    number = 1
    chosen = path
    while chosen.exists():
        number += 1
        chosen = path.with_name(f"{path.name}-{number}")
    return chosen
