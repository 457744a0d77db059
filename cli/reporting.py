"""What `report` does: the story of a run, read from this machine's history, as a page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.console import Failed

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.report.report import Story

STDOUT = "-"


def report_job(job: str | None, output: str | None) -> None:
    """Write the page of a job's last run to `output`: a file, or `-`. Ends with 2 if there is no history of it here."""
    from jobctl.jobs import job_of_name
    from jobctl.jobspec.report.html import page
    from jobctl.naming import name_of

    name = name_of(job)
    story = _story(job_of_name(name))
    text = page(story, time.time(), None)
    if output == STDOUT:
        console.out_bytes(text.encode())
        return
    path = Path(output or f"{name}-report.html")
    path.write_bytes(text.encode())
    console.say(f"wrote {path}: {_gist(story)}")


def _story(directory: JobDir) -> Story:
    """Return the story of the job's last run. Ends with 2 if there is none."""
    from jobctl.jobspec.deploy.store import events
    from jobctl.jobspec.deploy.store.history import read_progress
    from jobctl.jobspec.report.report import tell

    now = time.time() if _is_written(directory) else None
    lines, _ = events.read(directory.events)
    plan = directory.plan()
    if plan is not None and plan.target == "kubernetes":
        from jobctl.running import refuse

        raise refuse("report")
    known = (plan.framework, plan.target) if plan else (None, None)
    story = tell(directory.name, lines, read_progress(directory.progress), now, *known)
    if story is None:
        raise Failed(
            f"there is no history of job `{directory.name}` in {directory.root.parent.parent}",
            2,
            "`jobctl up` writes it where it is called; `jobctl list` shows the jobs that are up",
        )
    return story


def _is_written(directory: JobDir) -> bool:
    """Say whether someone goes on writing the history: the supervisor, or a command at work."""
    from jobctl.jobspec.deploy.store.lock import read_holder

    return bool(read_holder(directory.supervisor_lock) or read_holder(directory.lock))


def _gist(story: Story) -> str:
    """Return the story in a line."""
    from jobctl.jobspec.report.layout import duration, percent

    count = len(story.failures)
    what = "no failure" if count == 0 else f"{count} failure{'' if count == 1 else 's'}, {duration(story.lost)} lost"
    ratio = "" if story.ratio is None else f", {percent(story.ratio)} effective training time"
    return f"{story.phase}, {duration(story.end - story.begin)}, {what}{ratio}"
