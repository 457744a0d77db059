"""What the page of `jobctl ui` shows, as JSON: jobs, one job, its logs, its report."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.operations.errors import OperationError
from jobctl.jobspec.operations.inspect.status import observe
from jobctl.views.events import iso
from jobctl.views.logs import line_json
from jobctl.views.status import state_json

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.inspect.logs import Choice
    from jobctl.jobspec.report.report import Story

FRESH = 1.0  # seconds for which one look serves all windows
EVENTS, POINTS = 200, 120  # how many of them the page gets, the last ones
TAIL, LINES = 500, 1000  # lines that are read of each process, and that are shown of all


class UiData:
    """Looks at jobs for a page. Windows that ask for the same within a second share one look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._last: dict[str, tuple[float, dict[str, Any]]] = {}

    def jobs(self) -> dict[str, Any]:
        """Return the jobs that are up, with what their row shows."""
        return self._fresh("", lambda: {"jobs": list(map(_row, _directories()))})

    def job(self, name: str) -> dict[str, Any]:
        """Return the state of a job, its steps, failures and events. Raises OperationError."""
        return self._fresh(name, lambda: _whole(name))

    def _fresh(self, key: str, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with self._lock:
            kept = self._last.get(key)
            if kept is not None and 0 <= self._clock() - kept[0] < FRESH:
                return kept[1]
            found = look()
            self._last = {**self._last, key: (self._clock(), found)}
            return found

    def logs(self, name: str, choice: Choice, text: str) -> dict[str, Any]:
        """Return the last lines of a job that hold `text`. Raises OperationError."""
        from jobctl.jobspec.operations.inspect.logs import open_logs
        from jobctl.jobspec.operations.lifecycle.open import running_job

        with closing(running_job(_known(name).name).handle) as handle:
            logs = open_logs(handle, choice)
            found = deque((line for line in logs.lines(final=True) if text.encode() in line.text), LINES)
            problems = [str(error.message) for error in logs.problems.values()]
        return {"lines": [line_json(line) for line in found], "problems": problems}

    def report(self, name: str) -> str:
        """Return the report of a job, as `jobctl report` writes it. Raises OperationError."""
        from jobctl.jobspec.operations.inspect.report import story_of
        from jobctl.jobspec.report.html import page

        return page(story_of(_known(name)), time.time(), None)


def _directories() -> list[JobDir]:
    from jobctl.jobspec.deploy.store.jobdir import readable_jobs, state_dir

    return [one for one in readable_jobs(state_dir(os.environ)) if one.about() is not None]


def _known(name: str) -> JobDir:
    """Return a job by its name: a browser names no files. Raises Refused."""
    from jobctl.jobspec.operations.resolve.job import checked_name
    from jobctl.jobspec.operations.resolve.running import directory_of_running

    return directory_of_running(checked_name(name))


def _row(directory: JobDir) -> dict[str, Any]:
    keys = ("framework", "target", "phase", "reason", "generation", "replicas", "supervised")
    try:
        state = _observed(directory.name)
    except (OperationError, DeployError) as error:
        return {"job": directory.name, **dict.fromkeys(keys), "phase": "unknown", "reason": error.message, "step": None}
    return {"job": directory.name, **{key: state[key] for key in keys}, "step": _step(state)}


def _observed(name: str) -> dict[str, Any]:
    from jobctl.jobspec.operations.lifecycle.open import running_job

    with closing(running_job(name).handle) as handle:
        return state_json(handle, observe(handle))


def _step(state: dict[str, Any]) -> int | None:
    return max((node["progress"] for node in state["nodes"] if node["progress"] is not None), default=None)


def _whole(name: str) -> dict[str, Any]:
    from jobctl.jobspec.deploy.store.history import read_progress
    from jobctl.jobspec.operations.inspect.report import story_of

    directory = _known(name)
    state = _observed(directory.name)
    story = None
    with suppress(OperationError):
        story = story_of(directory)
    points = [[one.at, one.generation, one.step] for one in read_progress(directory.progress)[-POINTS:]]
    return {**state, "step": _step(state), "points": points, "story": _story(story)}


def _story(story: Story | None) -> dict[str, Any]:
    if story is None:
        return {"ratio": None, "lost": None, "failures": [], "events": []}
    failures = [
        {"time": iso(one.at), "node": one.node, "cause": one.cause, "step": one.step, "lost": one.lost}
        for one in story.failures
    ]
    events = [{"time": iso(one.at), "kind": one.kind, "message": one.message} for one in story.events[-EVENTS:]]
    return {"ratio": story.ratio, "lost": story.lost, "failures": failures, "events": events}
