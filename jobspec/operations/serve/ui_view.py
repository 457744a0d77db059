"""One job as the page of `jobctl ui` sees it: looked at when somebody asks, and no more often than that is worth."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.operations.errors import OperationError
from jobctl.jobspec.operations.inspect.as_json import iso, past_json, state_json
from jobctl.jobspec.operations.inspect.refreshed import FRESH, Refreshed
from jobctl.jobspec.operations.serve.ui_logs import MAX_LOG_LINES, TAIL, LogWindows

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.log_lines import Reader
    from jobctl.jobspec.deploy.store.history import StepProgress
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.inspect.listing import KnownJobs
    from jobctl.jobspec.operations.inspect.logs import Choice
    from jobctl.jobspec.operations.inspect.top import JobLoad, LoadWatch, NodeLoad
    from jobctl.jobspec.report.incidents import Incident
    from jobctl.jobspec.report.report import Story

VIEWED_SECONDS = 5.0  # seconds after a request for all of a job in which a page is taken to show it
IDLE = 120.0  # seconds after the last request for all of a job after which its logs are kept no longer
HOSTS_TIMEOUT, STORY_TIMEOUT = 2.0, 0.5  # seconds for which a page waits for hosts, and for a story
SHARE = 10  # a story is told again after so many times as long as telling it took
EVENTS, FAILURES, POINTS = 200, 100, 120  # how many of them the page gets, the last ones
TAIL_BYTES = 64 << 10  # of the record of steps, which has many more of them than that


class JobView:
    """Looks at one job for all windows, one look at a time. Several threads may ask.

    A look at a host that has fallen silent takes a minute and more: nobody waits for that.
    """

    def __init__(self, directory: JobDir, jobs: KnownJobs) -> None:
        self.directory, self._jobs = directory, jobs
        self._lock = threading.Lock()  # of the connections
        self._row: tuple[float, dict[str, Any]] | None = None
        self._asked = float("-inf")  # when all of it was last wanted
        self._handle: Handle | None = None
        self._watch: LoadWatch | None = None
        self._logs: LogWindows | None = None
        self._processes = 1
        self._samples = Samples()
        self._up = Refreshed(self._state)
        self._down = Refreshed(self._past, share=SHARE)
        self._told = _Telling(directory)

    def row(self) -> dict[str, Any]:
        """Return the job's row in the list of jobs. What keeps it from being seen is its reason."""
        if (row := self._kept_row()) is not None:
            return row
        with self._lock:
            if (row := self._kept_row()) is None:
                row = self._look()
                self._row = time.monotonic(), row
            return row

    def _kept_row(self) -> dict[str, Any] | None:
        """Return the row as it was last seen, if it is fresh, or a page that shows the whole job looks anyway."""
        now = time.monotonic()
        if self._row is not None and (0 <= now - self._row[0] < FRESH or 0 <= now - self._asked < VIEWED_SECONDS):
            return self._row[1]
        return None

    @property
    def last_row(self) -> dict[str, Any] | None:
        """The row as it was last seen, None if the first look is not over."""
        return self._row[1] if self._row else None

    def _look(self) -> dict[str, Any]:
        job = self._jobs.look(self.directory)
        if job.handle is None or job.observed is None:
            return unseen(job.name, job.error.message if job.error else "it is not up")
        self._follow(job.handle)
        row = _row(state_json(job.handle, job.observed))
        if not job.answered:
            self._jobs.drop(job.name)  # it is reached in another way, perhaps
        return row

    def whole(self, since: int, version: str) -> dict[str, Any]:
        """Return all that the page shows of the job: samples after number `since`, and the story unless it is `version`.

        `age` says how many seconds ago it was seen. Raises OperationError or DeployError if it cannot be seen.
        """
        self._asked = time.monotonic()
        is_up = self.directory.job_record() is not None
        state, age = (self._up if is_up else self._down).get(HOSTS_TIMEOUT)
        if state is None:
            state = {**unseen(self.directory.name), **_NOTHING, "down": not is_up, "points": _points(self._steps())}
        story = self._told.story()
        told = story["version"] == version
        found = {**state, "age": round(age), "samples": self._samples.after(since)}
        return {**found, "story": None if told else story}

    def rest(self) -> None:
        """Let go of the logs if no page shows the job any more; a page that comes back begins with the last lines."""
        if time.monotonic() - self._asked >= IDLE and self._lock.acquire(blocking=False):
            try:
                self._logs, self._watch = None, None
            finally:
                self._lock.release()

    def _state(self) -> dict[str, Any]:
        from jobctl.jobspec.operations.inspect.top import LoadWatch

        with self._lock:
            handle = self._jobs.handle(self.directory)
            self._follow(handle)
            if self._watch is None:
                self._watch = LoadWatch(handle)
            load = self._watch.look()
            state = state_json(handle, load.observed)
        self._processes = sum(len(node.processes) for node in load.observed.nodes) or 1
        self._samples.add(time.time(), load)
        self._row = time.monotonic(), _row(state)
        steps, shown = self._steps(), {"down": False, "step": step_of(state), "loads": _loads(load)}
        return {**state, **shown, "points": _points(steps), "rate": rate_of(state, steps, time.time())}

    def _past(self) -> dict[str, Any]:
        """Return what is known of a job that is down, with the same keys."""
        from jobctl.jobspec.deploy.store.past import past_job

        return {**past_json(past_job(self.directory)), **_NOTHING, "points": _points(self._steps())}

    def _steps(self) -> Sequence[StepProgress]:
        from jobctl.jobspec.deploy.store.history import read_progress

        return read_progress(self.directory.progress, TAIL_BYTES)

    def _follow(self, handle: Handle) -> None:
        """Let go of what belongs to connections that were closed: the job was brought up again, say."""
        if handle is not self._handle:
            self._handle, self._watch, self._logs = handle, None, None

    def logs(self, choice: Choice, text: str, since: str) -> dict[str, Any]:
        """Return the lines that a page lacks; none while hosts do not answer. Raises OperationError or DeployError."""
        if not self._lock.acquire(timeout=HOSTS_TIMEOUT):
            return {
                "lines": [],
                "problems": ["the job's hosts have not answered yet"],
                "searched": None,
                "more": True,
                "at": since,
            }
        try:
            self._follow(self._jobs.handle(self.directory))
            if self._logs is None:
                self._logs = LogWindows(self._open, self._open_whole)
            return self._logs.read(choice, text, since)
        finally:
            self._lock.release()

    def _open(self, choice: Choice) -> Reader:
        from dataclasses import replace

        from jobctl.jobspec.operations.inspect.logs import open_logs

        one = choice.rank is not None or self._processes == 1
        count = TAIL if one else max(20, min(TAIL, MAX_LOG_LINES // self._processes))
        assert self._handle is not None
        return open_logs(self._handle, replace(choice, tail=count))

    def _open_whole(self, choice: Choice) -> Reader:
        from jobctl.jobspec.operations.inspect.logs import open_logs

        assert self._handle is not None
        return open_logs(self._handle, choice)


ROW = ("job", "framework", "target", "phase", "reason", "generation", "replicas", "supervised", "step")


# What is seen of a job that is down.
_NOTHING: Mapping[str, Any] = {"nodes": [], "step": None, "rate": None, "loads": {}}


def unseen(name: str, why: str = "its hosts have not answered yet") -> dict[str, Any]:
    """Return the row of a job of which nothing is known, and why."""
    return {**dict.fromkeys(ROW), "job": name, "phase": "unknown", "reason": why}


def rate_of(state: Mapping[str, Any], steps: Sequence[StepProgress], now: float) -> float | None:
    """Return how many steps a second a job makes now, None if that is not known or it does not run."""
    from jobctl.jobspec.report.metrics import step_rate

    return step_rate(steps, state["generation"], now) if state["phase"] == "running" else None


def _points(steps: Sequence[StepProgress]) -> list[list[float]]:
    return [[one.at, one.generation, one.step] for one in steps[-POINTS:]]


def _row(state: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: state.get(key) for key in ROW}, "step": step_of(state)}


def step_of(state: Mapping[str, Any]) -> int | None:
    """Return the last step that any node has reported."""
    return max((node["progress"] for node in state["nodes"] if node["progress"] is not None), default=None)


def _loads(load: JobLoad) -> dict[str, Any]:
    return {str(one.node.node): _load(one) for one in load.nodes}


def _load(one: NodeLoad) -> dict[str, Any]:
    devices = [
        {"device": d.device, "name": d.name, "use": d.utilization, "used": d.memory_used, "memory": d.memory}
        for d in one.devices
    ]
    return {"rate": one.rate, "cpu": one.cpu, "memory": one.memory, "devices": devices}


class Samples:
    """How busy devices were at the last looks, in whole percent, numbered from 1."""

    def __init__(self) -> None:
        self._all: deque[tuple[int, float, dict[str, list[list[int | None]]]]] = deque(maxlen=POINTS)
        self._last = 0

    def add(self, at: float, load: JobLoad) -> None:
        """Take what one look has seen."""
        self._last += 1
        busy = {
            str(one.node.node): [[_percent(d.utilization), _share(d.memory_used, d.memory)] for d in one.devices]
            for one in load.nodes
            if one.devices
        }
        self._all.append((self._last, at, busy))

    def after(self, number: int) -> list[dict[str, Any]]:
        """Return those after number `number`; all, if that number is not of this server's."""
        first = number if number <= self._last else 0
        return [{"number": at, "at": when, "busy": busy} for at, when, busy in list(self._all) if at > first]


def _percent(share: float | None) -> int | None:
    return None if share is None else max(0, min(100, round(100 * share)))


def _share(part: float | None, whole: float | None) -> int | None:
    return _percent(part / whole) if part is not None and whole else None


class _Telling:
    """The story of a job's run, told again in the background: that of a week takes a second, for which no page waits."""

    def __init__(self, directory: JobDir) -> None:
        self._directory = directory
        self._text, self._version = "", 0
        self._told = Refreshed(self._tell, share=SHARE)

    def story(self) -> dict[str, Any]:
        """Return the story as it was told last, with its version."""
        told, _ = self._told.get(STORY_TIMEOUT)
        version, story = told or (0, story_json(None))
        return {**story, "version": f"{self._directory.name}:{id(self)}:{version}"}

    def _tell(self) -> tuple[int, dict[str, Any]]:
        from jobctl.jobspec.operations.inspect.report import story_of

        story = None
        with suppress(OperationError, OSError):
            story = story_of(self._directory)
        told = story_json(story)
        text = json.dumps(told)
        if text != self._text:
            self._text, self._version = text, self._version + 1
        return self._version, told


def story_json(story: Story | None) -> dict[str, Any]:
    """Return what the page shows of a story: failures with what was kept of them, and the last events."""
    if story is None:
        return {"phase": None, "reason": None, "ratio": None, "lost": None, "failures": [], "events": []}
    events = [{"time": iso(one.at), "kind": one.kind, "message": one.message} for one in story.events[-EVENTS:]]
    return {
        "phase": story.phase,
        "reason": story.reason,
        # As a page shows it: finer figures would change at every look.
        "ratio": None if story.ratio is None else round(story.ratio, 2),
        "lost": round(story.lost),
        "failures": [_failure(one) for one in story.failures[-FAILURES:]],
        "events": events,
    }


def _failure(one: Incident) -> dict[str, Any]:
    from jobctl.jobspec.report.html import process_names
    from jobctl.jobspec.report.layout import cut

    return {
        "time": iso(one.at),
        "node": one.node,
        "cause": one.cause,
        "step": one.step,
        "lost": round(one.lost),
        "outcome": one.outcome,
        "log": one.log,
        "tail": list(map(cut, one.tail)),
        "stacks": [{"who": process_names(stack), "frames": list(map(cut, stack.frames))} for stack in one.stacks],
    }
