"""The removal of a job's objects: what jobctl waits for, and what it does where nobody collects what hangs on them.

An object that makes pods is deleted after them (`Foreground`): the garbage collector of the controller manager ends all
that names the object as its owner, and takes the finalizer away. Where none runs, both are done here.
https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.kinds import (
    CONFIG_MAP,
    JOB,
    JOB_SET,
    POD,
    POD_GROUP,
    SECRET,
    SERVICE,
    Object,
    is_made_by_another,
    key_of,
)
from jobctl.jobspec.deploy.kubernetes.manifests import is_main
from jobctl.jobspec.deploy.kubernetes.mirror import find_all_of
from jobctl.jobspec.deploy.kubernetes.pods import Pod, parse_pod
from jobctl.jobspec.deploy.kubernetes.problems import ApiError
from jobctl.jobspec.deploy.model.errors import DeployError

POLL_INTERVAL = 0.3  # seconds between two looks at what it waits for
REMOVAL_TIMEOUT = 60.0  # seconds, beyond the grace of its processes, that the removal of an object may take
COLLECTOR_TIMEOUT = 5.0  # seconds after which a garbage collector has begun with what hangs on an object
ORPHAN_POLL_INTERVAL = 2.0  # seconds between two looks at what nobody else removes
NAMED = 5  # objects that are named of those that are waited for

# What controllers of jobs make, and the finalizers that only they and the garbage collector take away.
_MADE = (POD, JOB, JOB_SET, SERVICE, CONFIG_MAP, SECRET, POD_GROUP)
_FOREGROUND, _TRACKING = "foregroundDeletion", "batch.kubernetes.io/job-tracking"


class Removal:
    """The removal of objects of one job. `tell` hears what it waits for, again and again."""

    def __init__(self, api: Api, job: str, tell: Callable[[str], None], grace: float) -> None:
        self.api, self.job, self.tell, self.patience = api, job, tell, grace + REMOVAL_TIMEOUT
        self._looked = 0.0

    def remove(self, things: Sequence[Object]) -> None:
        """Delete objects in their order, each with all that hangs on it, and wait. Raises DeployError."""
        for thing in things:
            self.tell(f"removing {key_of(thing)}")
            name, uid = key_of(thing).name, thing["metadata"]["uid"]
            self.api.delete(self.api.kind_of(thing), name, uid, last=is_main(thing))
        begun = time.monotonic()
        while things := [found for thing in things if (found := self._again(thing)) is not None]:
            self._wait(begun, [_told(thing) for thing in things])
            if time.monotonic() - begun > COLLECTOR_TIMEOUT:
                self._collect(things)

    def remove_pods(self, but_of: Sequence[Object] = ()) -> None:
        """Wait until no pod is left; one without a controller (its object was deleted by hand) is deleted too.

        Pods that were made for an object of `but_of` stay.
        """
        begun = time.monotonic()
        while left := [pod for pod in find_all_of(self.api, POD, self.job) if not _is_made_for(pod, but_of)]:
            abandoned = time.monotonic() - begun > COLLECTOR_TIMEOUT
            for pod in left:
                if abandoned or not is_made_by_another(pod):
                    self._end(pod)
            self._wait(begun, [_told(pod) for pod in left])

    def wait_for_ends(self) -> None:
        """Wait until no pod runs that was told to end; those that have ended may stay. Raises DeployError."""
        begun = time.monotonic()
        while left := [pod.name for pod in self._pods() if not pod.ended]:
            if time.monotonic() - begun > self.patience:
                raise DeployError(
                    f"{self.api.name}/{self.api.namespace}: pods {', '.join(left[:NAMED])} were told to end, and have not",
                    "does the operator run? are their nodes off? `kubectl get pods` tells; `jobctl down` removes them",
                )
            self.tell(f"waiting for pods {', '.join(left[:NAMED])} to end")
            time.sleep(POLL_INTERVAL)

    def _pods(self) -> list[Pod]:
        return [parse_pod(pod) for pod in find_all_of(self.api, POD, self.job)]

    def _wait(self, begun: float, left: Sequence[str]) -> None:
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        names = f"{', '.join(left[:NAMED])}{more}"
        if time.monotonic() - begun > self.patience:
            raise DeployError(
                f"{self.api.name}/{self.api.namespace}: still there though deleted: {names}",
                "is a node off? then `kubectl delete pod --force` once you know that it is; "
                "`down` again says whether all is gone",
            )
        self.tell(f"waiting for {names} to go")
        time.sleep(POLL_INTERVAL)

    def _again(self, thing: Object) -> Object | None:
        """Return an object as it is now, None if it has gone."""
        found = self.api.find(self.api.kind_of(thing), key_of(thing).name)
        same = found is not None and found["metadata"]["uid"] == thing["metadata"]["uid"]
        return found if same else None

    # In place of the garbage collector.

    def _collect(self, things: Sequence[Object]) -> None:
        """Remove what hangs on objects that wait for that, where nobody has begun with it."""
        if time.monotonic() - self._looked < ORPHAN_POLL_INTERVAL:
            return
        self._looked = time.monotonic()
        pods = find_all_of(self.api, POD, self.job)
        if pods and all(_is_going(pod) for pod in pods):
            for pod in pods:
                self._end(pod)
            return
        waiting = [thing for thing in things if _FOREGROUND in (thing["metadata"].get("finalizers") or ())]
        made = list(self._made()) if waiting else []
        for thing in waiting:
            self._empty(thing, made)

    def _empty(self, thing: Object, made: Sequence[Object]) -> None:
        """Delete what was made for an object, whose controller then makes no more; let go of it when all has gone."""
        own = _owned(thing, made)
        for one in own:
            self._end(one, last=bool(_owned(one, made)))
            self._empty(one, made)
        if not own:
            self._let_go(thing, _FOREGROUND)

    def _end(self, thing: Object, *, last: bool = False) -> None:
        meta = thing["metadata"]
        if not _is_going(thing):
            self.api.delete(self.api.kind_of(thing), meta["name"], meta["uid"], last=last)
        elif meta.get("deletionGracePeriodSeconds") == 0:  # its processes have ended
            self._let_go(thing, _TRACKING)

    def _let_go(self, thing: Object, finalizer: str) -> None:
        meta = thing["metadata"]
        held = meta.get("finalizers") or []
        if finalizer not in held:
            return
        rest = [one for one in held if one != finalizer]
        try:
            self.api.merge(thing, {"metadata": {"finalizers": rest, "resourceVersion": meta["resourceVersion"]}})
        except ApiError as error:
            if error.status not in (403, 404) and not error.is_another:  # nobody may; it has gone; somebody was quicker
                raise

    def _made(self) -> Iterator[Object]:
        for kind in _MADE:
            try:
                found, _ = self.api.find_all(kind)
            except ApiError as error:
                if error.status in (403, 404):  # who may not look at it has not made it either, through a controller
                    continue
                raise
            yield from found


def _owned(thing: Object, made: Sequence[Object]) -> list[Object]:
    """Return those of `made` that were made for an object."""
    uid = thing["metadata"]["uid"]
    return [one for one in made if any(o["uid"] == uid for o in one["metadata"].get("ownerReferences") or ())]


def _is_made_for(pod: Object, things: Sequence[Object]) -> bool:
    return any(_owned(thing, [pod]) for thing in things)


def _is_going(thing: Object) -> bool:
    return thing["metadata"].get("deletionTimestamp") is not None


def _told(thing: Object) -> str:
    """Return what is left, and what holds it."""
    held = ", ".join(thing["metadata"].get("finalizers") or ())
    return f"{key_of(thing)}{f' ({held})' if held else ''}"
