"""What the pods of a job print, merged by time, and followed over cut connections and restarts.

The API has the log of a container's present run and of its previous one. Each line begins with the time of its writing
(`timestamps=true`). To read on, jobctl asks for all since a second before the last line he has (`sinceTime` is cut to
seconds on its way to the kubelet) and leaves out what he had: nothing is lost, nothing comes twice.
"""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

from jobctl.jobspec.deploy.kubernetes.api import READ_TIMEOUT, Api
from jobctl.jobspec.deploy.kubernetes.kinds import POD, Object
from jobctl.jobspec.deploy.kubernetes.pod_log_writers import Writer, writers
from jobctl.jobspec.deploy.kubernetes.pods import Pod, parse_pod
from jobctl.jobspec.deploy.kubernetes.problems import ApiError, Call, Cut
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.log_lines import Line, LineSelection
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass

RETRY_AFTER = 1.0  # seconds before a log is asked for again that could not be read
_PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)  # seconds before a log is read on whose connection broke
SILENCE_TIMEOUT = 120.0  # seconds without a line after which a connection may be a dead one
ENDED_LOGS_TIMEOUT = 10.0  # seconds that the logs of pods that have ended may take to come


@dataclass(slots=True)
class PodLogOffset:
    """How far the log of one run of a container was read."""

    second: int = 0  # of the last line, since the epoch; 0 for none
    seen: Counter[tuple[int, bytes]] = field(default_factory=Counter)  # lines of that second and of the one before

    def since(self) -> float | None:
        """Return from when on to read, None for all."""
        return self.second - 1.0 if self.second else None

    def fresh(self, lines: Iterator[bytes]) -> Iterator[tuple[float, bytes]]:
        """Yield those lines that were not read before, with their times."""
        known = Counter(self.seen)
        for line in lines:
            stamp, _, text = line.partition(b" ")
            at = _time(stamp)
            if at is None:
                continue  # the kubelet's own words, such as that it cannot read the rest
            if known[int(at), line] > 0:
                known[int(at), line] -= 1
            else:
                self._take(int(at), line)
                yield at, text

    def _take(self, second: int, line: bytes) -> None:
        """Note a line that was read. Lines of several writers may come in another order than they were stamped."""
        if second > self.second:
            self.second = second
            self.seen = Counter({old: count for old, count in self.seen.items() if old[0] >= second - 1})
        self.seen[second, line] += 1


def _time(stamp: bytes) -> float | None:
    """Return the seconds since the epoch that a stamp means, None for other text."""
    try:
        return datetime.fromisoformat(stamp.decode("ascii")).timestamp() if len(stamp) > 18 else None
    except ValueError:
        return None


class PodLog:
    """The log of one pod, read from where it was left."""

    def __init__(self, api: Api, pod: Pod, writer: Writer, since: float | None = None, last: int | None = None) -> None:
        self.api, self.pod, self.writer, self.since, self.last = api, pod, writer, since, last
        self.place = PodLogOffset()
        self.run = pod.restarts  # which run of the container `place` is in
        self.over = False
        self.thread: threading.Thread | None = None

    def so_far(self) -> Iterator[Line]:
        """Yield what there is now: of the run before, of which the container still has the log, and of this one."""
        if self.last is not None:
            yield from _last(list(self._whole(self.place)), self.last)
            return
        if self.pod.restarts:
            yield from self._whole(PodLogOffset(), previous="true")
        yield from self._whole(self.place)

    def _whole(self, place: PodLogOffset, **how: str) -> Iterator[Line]:
        """Yield what there is now, over cut connections. Raises Cut if there is no end to them."""
        for pause in (*_PAUSES, None):
            try:
                yield from self._read(place, **how)
                return
            except Cut:
                if pause is None:
                    raise
                time.sleep(pause)

    def open_rest(self) -> Any:
        """Return an open answer with what comes of the present run after what was read. Raises DeployError."""
        call, query = self._query(self.place, follow="true")
        return self.api.stream(call, query, SILENCE_TIMEOUT)

    def rest(self, answer: Any) -> Iterator[Line]:
        """Yield what comes on an answer of `open_rest`, until the run has ended. Raises Cut if it breaks off before."""
        call, _ = self._query(self.place)
        return self._lines(self.place, self.api.lines(answer, call, rest_too=True))

    def follow(self, tell: Callable[[Line], None], failed: Callable[[DeployError | None], None]) -> None:
        """Tell each line as it comes, until the pod has ended or is gone."""
        while True:
            came, begun = False, time.monotonic()
            try:
                self._go_on(tell)
                if self.over:
                    return
                for line in self._stream():
                    came = True
                    tell(line)
                failed(None)
            except Cut:
                pass  # it is read on from where it broke off: at once, unless it breaks soon, and before a line has come
            except ApiError as error:
                if error.status == 404:
                    self.over = True
                    return
                if error.status != 400:  # 400: the container has not begun
                    failed(error)
            except DeployError as error:
                failed(error)
            if not came and time.monotonic() - begun < SILENCE_TIMEOUT:
                time.sleep(RETRY_AFTER)

    def _go_on(self, tell: Callable[[Line], None]) -> None:
        """See what became of the pod: its container may be in another run by now, it may have ended, or be gone."""
        found = self._look()
        if found is None:
            self.over = True
            return
        pod = parse_pod(found)
        if pod.restarts > self.run:
            for line in self._whole(self.place, previous="true"):
                tell(line)
            self.place, self.run = PodLogOffset(), pod.restarts
        if (found.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            for line in self._whole(self.place):
                tell(line)
            self.over = True

    def _look(self) -> Object | None:
        """Return the pod as it is now, None if it is gone."""
        found = self.api.find(POD, self.pod.name)
        return found if found is not None and found["metadata"]["uid"] == self.pod.uid else None

    def _stream(self) -> Iterator[Line]:
        """Yield what comes of the present run; nothing if another may have begun while it was asked for."""
        call, query = self._query(self.place, follow="true")
        answer = self.api.stream(call, query, SILENCE_TIMEOUT)
        found = self._look()
        if found is None or parse_pod(found).restarts != self.run:
            answer.close()
            return
        yield from self._lines(self.place, self.api.lines(answer, call))

    def _read(self, place: PodLogOffset, **how: str) -> Iterator[Line]:
        """Yield what there is now that was not read before; nothing where there is no such run, or no pod any more."""
        call, query = self._query(place, **how)
        try:
            answer = self.api.stream(call, query, READ_TIMEOUT)
        except ApiError as error:
            if error.status not in (400, 404):
                raise
            return
        # Of a log that is followed, the rest of a line may only have been cut off; here it is the last one.
        yield from self._lines(place, self.api.lines(answer, call, rest_too=True))

    def _query(self, place: PodLogOffset, **how: str) -> tuple[Call, dict[str, str]]:
        query = {"container": self.pod.container, "timestamps": "true", **how}
        since = place.since() or self.since
        if since is not None:
            query["sinceTime"] = _stamp(since)
        elif self.last is not None and not self.writer.forwarded:  # else they may all be those of one of its processes
            query["tailLines"] = str(self.last)
        return Call("get", POD, self.api.namespace, self.pod.name, "log"), query

    def _lines(self, place: PodLogOffset, lines: Iterator[bytes]) -> Iterator[Line]:
        for at, text in place.fresh(lines):
            if self.since is None or at >= self.since:
                yield self.writer.line(at, text)


def _last(lines: Sequence[Line], count: int) -> list[Line]:
    """Return the last lines of each process, as many of each."""
    found, kept = Counter[str](), []
    for line in reversed(lines):
        found[line.log] += 1
        if found[line.log] <= count:
            kept.append(line)
    return kept[::-1]


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PodLogs:
    """The chosen logs of a job's pods. `problems` says why one cannot be read now, by the pod's name."""

    interval = 0.2

    def __init__(
        self, api: Api, look: Callable[[], list[Pod]], plan: Plan | None, selection: LineSelection, last: int | None
    ) -> None:
        self.api, self.look, self.plan, self.selection, self.last = api, look, plan, selection, last
        self.problems: dict[str, DeployError] = {}
        self._logs: dict[str, PodLog] = {}
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._begun = False

    def nodes(self) -> set[int]:
        """Return the nodes that have pods."""
        return {writer.node for writer in writers(self.look(), self.plan).values()}

    def generations(self) -> set[int]:
        """Return no generation: they are the operator's own business."""
        return set()

    def lines(self, *, final: bool = False) -> Iterator[Line]:
        """Yield the lines that came since the last call, merged by time; with `final` all that will come."""
        self._discover()
        if not self._begun:
            self._begun = True
            merged = heapq.merge(*map(self._so_far, self._logs.values()), key=lambda line: line.time)
            yield from filter(self._is_chosen, merged)
            if final:
                return
        if final:
            self._wait()
        else:
            self._follow()
        found = []
        while not self._lines.empty():
            found.append(self._lines.get())
        yield from filter(self._is_chosen, sorted(found, key=lambda line: line.time))

    def _so_far(self, log: PodLog) -> Iterator[Line]:
        """Yield what a log has now. One that cannot be read, as its pod's node is off, hides no other."""
        try:
            yield from log.so_far()
        except DeployError as error:
            self.problems[log.pod.name] = error

    def _discover(self) -> None:
        """See which pods there are now. A server that is away for a while, as for its own update, ends nobody's logs."""
        try:
            pods = sorted(self.look(), key=lambda pod: pod.created)
        except DeployError as error:
            if not self._begun:
                raise
            self.problems[self.api.name] = error
            return
        self.problems.pop(self.api.name, None)
        who = writers(pods, self.plan)
        for pod in pods:
            if pod.uid in self._logs:
                self._logs[pod.uid].pod = pod
            elif self._is_selected(who[pod.uid]):
                last = None if self._begun else self.last
                self._logs[pod.uid] = PodLog(self.api, pod, who[pod.uid], self.selection.since, last)

    def _is_selected(self, writer: Writer) -> bool:
        return self.selection.node is None or self.selection.node == writer.node

    def _is_chosen(self, line: Line) -> bool:
        rank = self.selection.rank
        return rank is None or (line.rank == rank and line.log.startswith("worker"))  # servers have ranks of their own

    def _follow(self) -> None:
        """Follow what is not followed yet."""
        for log in self._logs.values():
            if log.thread is None:
                log.thread = threading.Thread(
                    target=log.follow, args=(self._lines.put, self._teller(log)), name=log.pod.name, daemon=True
                )
                log.thread.start()

    def _teller(self, log: PodLog) -> Callable[[DeployError | None], None]:
        def told(problem: DeployError | None) -> None:
            if problem is None:
                self.problems.pop(log.pod.name, None)
            else:
                self.problems[log.pod.name] = problem

        return told

    def _wait(self) -> None:
        """Wait for the last lines of pods that have ended; those that go on have told all that matters."""
        self._follow()
        deadline = time.monotonic() + ENDED_LOGS_TIMEOUT
        ended = [log for log in self._logs.values() if log.pod.ended]
        for log in ended:
            if log.thread is not None:
                log.thread.join(max(0.0, deadline - time.monotonic()))


def last_lines(api: Api, pod: Pod, count: int) -> tuple[str, ...]:
    """Return the last lines that a pod has printed, none if they cannot be read."""
    try:
        lines = list(PodLog(api, pod, Writer(0, None, ""), last=count).so_far())
    except DeployError:
        return ()
    return tuple(line.text.decode("utf-8", "replace") for line in lines)
