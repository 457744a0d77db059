"""What the page of `jobctl ui` shows, as JSON: jobs, one job, its logs, its report."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.operations.inspect.as_json import past_json
from jobctl.jobspec.operations.inspect.listing import KnownJobs, jobs_that_are_down
from jobctl.jobspec.operations.serve.ui_view import ROW, SHARE, JobView, unseen

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.inspect.logs import Choice

SLOW_JOBS_TIMEOUT = 2.0  # seconds that the list of jobs waits for jobs whose hosts are slow
DOWN_EVERY = 5.0  # seconds for which jobs that are down are not looked for again, at least


class UiData:
    """Looks at jobs for a page. `known` finds the jobs that are up."""

    def __init__(self, known: KnownJobs | None = None) -> None:
        self._known = known or KnownJobs(live=True)
        self._lock = threading.Lock()
        self._views: dict[str, JobView] = {}
        self._looks: dict[str, Future[Any]] = {}
        self._down: tuple[float, frozenset[str], list[dict[str, Any]]] = (float("-inf"), frozenset(), [])

    def close(self) -> None:
        """Let go of all connections."""
        for look in list(self._looks.values()):
            look.cancel()
        self._known.close()

    def jobs(self) -> dict[str, Any]:
        """Return the jobs that are up and those that are down, with what their rows show.

        A job whose hosts are slow is shown as it was last seen: it keeps the others from nothing.
        """
        directories = self._known.directories()
        with self._lock:
            views = [self._view(directory) for directory in directories]
            for view in views:
                name = view.directory.name
                if name not in self._looks or self._looks[name].done():
                    self._looks[name] = self._known.begin(view.row)
            looks = [self._looks[view.directory.name] for view in views]
            self._forget({directory.name for directory in directories})
        wait(looks, SLOW_JOBS_TIMEOUT)
        up = [{**(view.last_row or unseen(view.directory.name)), "down": False} for view in views]
        return {"jobs": [*up, *self._that_are_down(frozenset(directory.name for directory in directories))]}

    def _view(self, directory: JobDir) -> JobView:
        if directory.name not in self._views:
            self._views[directory.name] = JobView(directory, self._known)
        return self._views[directory.name]

    def _forget(self, up: set[str]) -> None:
        """Let go of jobs that are gone altogether; those that are down may be looked at still."""
        for name in [name for name, view in self._views.items() if name not in up and not view.directory.root.exists()]:
            del self._views[name]
        for view in self._views.values():
            view.rest()
        for name in self._looks.keys() - up:
            del self._looks[name]

    def _that_are_down(self, up: frozenset[str]) -> list[dict[str, Any]]:
        """Return the rows of jobs that are down: these change seldom, and reading their history takes a while."""
        until, before, rows = self._down
        begun = time.monotonic()
        if begun >= until or before != up:
            found = [past_json(past) for past in jobs_that_are_down()]
            rows = [{**{key: row.get(key) for key in (*ROW, "down_since")}, "down": True} for row in found]
            now = time.monotonic()
            self._down = now + max(DOWN_EVERY, SHARE * (now - begun)), up, rows
        return rows

    def job(self, name: str, since: int = 0, version: str = "") -> dict[str, Any]:
        """Return all of a job except the samples and the story that the page has. Raises OperationError or DeployError."""
        return self._known_view(name).whole(since, version)

    def logs(self, name: str, choice: Choice, text: str, since: str) -> dict[str, Any]:
        """Return the last lines of a job that hold `text`, and that a page lacks. Raises OperationError or DeployError."""
        return self._known_view(name).logs(choice, text, since)

    def report(self, name: str) -> str:
        """Return the report of a job, as `jobctl report` writes it. Raises OperationError."""
        from jobctl.jobspec.operations.inspect.report import story_of
        from jobctl.jobspec.report.html import page

        return page(story_of(known_directory(name)), time.time(), None)

    def _known_view(self, name: str) -> JobView:
        directory = known_directory(name)
        with self._lock:
            return self._view(directory)


def known_directory(name: str) -> JobDir:
    """Return the directory of a job by its name: a browser names no files. Raises Refused."""
    from jobctl.jobspec.operations.errors import Refused
    from jobctl.jobspec.operations.resolve.job import checked_name, job_of_name

    directory = job_of_name(checked_name(name))
    if not os.path.isdir(directory.root):
        raise Refused(f"no job `{name}` is known here", "`jobctl list --all` shows the jobs that are")
    return directory
