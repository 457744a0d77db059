"""Taking logs away before their folder is removed, and the folders of this machine's history where they go."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.store import events

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir


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


def last_folders(job: JobDir) -> list[Path]:
    """Return where logs went when the job was last taken down, the oldest first; nothing if it never was.

    They are several if a `down` was cut off, or could not reach all hosts, and the next one went on. They are of an earlier
    run if the job was taken down whole after them, or brought up again.
    """
    found = sorted((path.stat().st_mtime, path) for path in job.history.glob("*") if path.is_dir())
    newest = found[-1][0] if found else 0.0
    told = [event for event in events.read(job.events)[0] if event["event"] in ("up", "step", "down")]
    between = [event["time"] for event in told if event["event"] != "down" or not event.get("failed")]
    began = max((at for at in between if at < newest), default=0.0)
    return [path for at, path in found if at > began]


def free_name(path: Path) -> Path:
    """Return `path`, or what is like it and not there yet."""
    number = 1
    chosen = path
    while chosen.exists():
        number += 1
        chosen = path.with_name(f"{path.name}-{number}")
    return chosen
