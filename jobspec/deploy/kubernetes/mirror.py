"""The objects of one kind that a job has: listed once, and kept true by a watch for the next look.

A watch goes on from the last resourceVersion that it heard of, whatever broke it off; where the server has forgotten
that (410 Gone), it lists everything again (https://kubernetes.io/docs/reference/using-api/api-concepts/#410-gone-responses).
By hand, as the client's SharedInformer does not tell how old is what it knows, and asks a server that fails without a pause.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from typing import Any

from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.kinds import Kind, Object
from jobctl.jobspec.deploy.kubernetes.problems import ApiError, Call, Cut, problem_of
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.launcher.system.processes import boot_time
from jobctl.jobspec.render.marks import selectors

WATCH = 240  # seconds after which the server ends a watch
SILENCE = 10.0  # seconds without a byte after which a watch is begun again: the connection may be gone
SLEEP = 1.0  # seconds that this machine slept after which a connection may be gone
PAUSE = 1.0  # seconds before it is tried again
IDLE = 10.0  # seconds without a look after which nobody is interested any more
WATCH_PAUSE = 0.1  # seconds between a watch that the server has ended and the next
WATCH_TIMEOUT = 3.0  # seconds without a watch after which what is known counts as old


def find_all_of(api: Api, kind: Kind, job: str) -> list[Object]:
    """Return all objects of one kind that a job has, whichever version of jobctl made them."""
    return _once(item for one in selectors(job) for item in api.find_all(kind, {"labelSelector": one})[0])


def _once(items: Iterable[Object]) -> list[Object]:
    return list({item["metadata"]["uid"]: item for item in items}.values())


def _slept() -> float:
    """Return how many seconds this machine has slept since it booted, where the system tells."""
    return boot_time() - time.monotonic()


class JobMirror:
    """All objects of one kind that a job has. Those with marks of old are looked for until there are none."""

    def __init__(self, api: Api, kind: Kind, job: str) -> None:
        new, old = selectors(job)
        self._new: Mirror = Mirror(api, kind, new)
        self._old: Mirror | None = Mirror(api, kind, old)

    def objects(self) -> list[Object]:
        """Return the objects as they are now, see `Mirror.objects`."""
        found = self._new.objects()
        if self._old is None:
            return found
        old = self._old.objects()
        if not old:  # nobody makes such objects any more
            self._old.close()
            self._old = None
        return _once([*found, *old])

    def close(self) -> None:
        """Watch no more."""
        self._new.close()
        if self._old is not None:
            self._old.close()


class Mirror:
    """All objects of one kind that `selector` chooses."""

    def __init__(self, api: Api, kind: Kind, selector: str) -> None:
        self.api, self.kind, self.selector = api, kind, selector
        self._objects: dict[str, Object] = {}
        self._version = ""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._problem: DeployError | None = None
        self._deaf_since: float | None = None
        self._listed = False
        self._looked = 0.0
        self._lists = 0  # how many there were: a watch goes on from one
        self._slept = _slept()

    def objects(self) -> list[Object]:
        """Return the objects as they are now; the first look lists them, a second begins to watch. Raises DeployError."""
        self._looked = time.monotonic()
        if not self._listed:
            self._relist()
            self._listed = True
        elif self._thread is None:
            self._relist()
            self._hear()  # whatever the last watch has ended with
            self._thread = threading.Thread(target=self._keep, name=f"watch {self.kind.plural}", daemon=True)
            self._thread.start()
        elif _slept() - self._slept > SLEEP:
            self._relist()  # until another watch has begun
        with self._lock:
            if self._problem is not None and self._is_old():
                raise self._problem
            return list(self._objects.values())

    def _is_old(self) -> bool:
        return self._deaf_since is not None and time.monotonic() - self._deaf_since > WATCH_TIMEOUT

    def close(self) -> None:
        """Watch no more."""
        self._stopping = True

    def _relist(self) -> None:
        items, version = self.api.find_all(self.kind, {"labelSelector": self.selector})
        with self._lock:
            self._objects = {item["metadata"]["uid"]: item for item in items}
            self._version = version
            self._lists += 1

    def _keep(self) -> None:
        while not self._stopping and time.monotonic() - self._looked < IDLE:
            try:
                self._watch()
                time.sleep(WATCH_PAUSE)
            except ApiError as error:
                if error.status == 410:
                    self._again()
                elif error.status == 403:  # who may not watch may still list
                    self._again()
                    time.sleep(PAUSE)
                else:
                    self._deaf(error)
            except DeployError as error:
                self._deaf(error)
        self._thread = None  # whoever looks again begins anew

    def _again(self) -> None:
        try:
            self._relist()
            self._hear()
        except DeployError as error:
            self._deaf(error)

    def _deaf(self, problem: DeployError) -> None:
        with self._lock:
            self._problem = problem
            if self._deaf_since is None:
                self._deaf_since = time.monotonic()
        time.sleep(PAUSE)

    def _hear(self) -> None:
        with self._lock:
            self._problem = self._deaf_since = None
            self._slept = _slept()

    def _watch(self) -> None:
        """Take what the server tells until it ends the watch, or a look has listed everything again.

        Raises ApiError (410: it has forgotten where we were).
        """
        call = Call("watch", self.kind, self.api.namespace)
        with self._lock:
            version, lists = self._version, self._lists
        query = {
            "watch": "true",
            "labelSelector": self.selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH),
        }
        answer = self.api.stream(call, query, SILENCE)
        self._hear()
        for line in self.api.lines(answer, call):
            self._take(call, line, lists)
            if self._stopping or self._lists != lists:
                return

    def _take(self, call: Call, line: bytes, lists: int) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise Cut(self.api.name, f"cannot {call}: what comes is no event: {error}") from error
        thing = event["object"]
        if event["type"] == "ERROR":
            raise problem_of(call, int(thing.get("code") or 500), json.dumps(thing).encode(), self.api.name)
        with self._lock:
            if self._lists != lists:  # it may be older than the list
                return
            self._version = thing["metadata"]["resourceVersion"]
            if event["type"] in ("ADDED", "MODIFIED"):
                self._objects[thing["metadata"]["uid"]] = thing
            elif event["type"] == "DELETED":
                self._objects.pop(thing["metadata"]["uid"], None)
