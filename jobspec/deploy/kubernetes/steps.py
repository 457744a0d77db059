"""Wanted objects against those in the cluster: the steps that lead from one to the other, each with its cause.

Pure. What makes pods is never changed in place: most of it cannot be (`field is immutable`), and no operator restarts
pods whose template changed. It is deleted and created, and the annotation `jobctl.dev/spec` says whether it has to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from jobctl.jobspec.deploy.apply.reconcile import ORDER, Kind, Step
from jobctl.jobspec.deploy.kubernetes.job_state import is_stopped
from jobctl.jobspec.deploy.kubernetes.kinds import (
    CONFIG_MAP,
    SECRET,
    Object,
    ObjectKey,
    is_made_by_another,
    key_of,
)
from jobctl.jobspec.deploy.kubernetes.manifests import is_main
from jobctl.jobspec.deploy.model.observed import Phase
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.marks import INPUTS, OWNER, SPEC, VERSION, annotation_of, mark

# What the server keeps beside what anybody says of an object.
_SERVERS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
_OWNER = f"metadata.annotations.{mark(OWNER)}"
# A running job has read the launcher; another version of it does not change the job.
_NOT_A_CHANGE = ("data.launcher.py", _OWNER)
_MOUNTED = (CONFIG_MAP.kind, SECRET.kind)  # what pods read when they begin, and of these objects
_READ = ("data", "binaryData")
_STOPPED = "the job was stopped"
_OTHER_VERSION = "another version of jobctl made it in another way"


@dataclass(frozen=True, slots=True)
class There:
    """The contents of the cluster: `objects` of this job, and what those that are wanted `would` become if applied."""

    objects: Mapping[ObjectKey, Object]
    would: Mapping[ObjectKey, Object] = field(default_factory=dict)
    phase: Phase = "stopped"
    unchanged: bool = False  # whether it is known to be made from the same spec and code, by whichever jobctl


def steps(want: Sequence[Object], there: There, anew: str | None = None) -> tuple[Step, ...]:
    """Return what there is to do, nothing if all is as wanted; `anew` asks for new pods, whatever runs now."""
    cause = _cause(want, there)
    mains = [step for thing in want if is_main(thing) for step in _main(thing, there, anew, cause)]
    begins = any(step.kind in ("create", "replace") for step in mains)
    but = (_OWNER,) if begins else _NOT_A_CHANGE  # new pods read the launcher of the version that makes them
    beside = [step for thing in want if not is_main(thing) for step in _beside(thing, there, but)]
    if anew is None and _stands(want, there):
        return tuple(_resumed(want, there))
    extra = list(_extra(want, there))
    if there.phase == "succeeded" and not any(step.kind == "replace" for step in mains):
        return ()  # it has done its work: what it needed for that may be gone
    return tuple(sorted([*extra, *mains, *beside], key=lambda step: ORDER[step.kind]))


def _stands(want: Sequence[Object], there: There) -> bool:
    """Say whether a job goes on that another jobctl has made of the same spec: a new version alone ends no pods."""
    pairs = [(thing, there.objects.get(key_of(thing))) for thing in want]
    if there.phase in ("failed", "stopped") or any(now is None for _, now in pairs):
        return False
    mains = [(thing, now) for thing, now in pairs if now is not None and is_main(thing)]
    secrets = [thing for thing in want if thing["kind"] == SECRET.kind]
    return (
        all(_is_another_versions(thing, now, there) for thing, now in mains)
        and all(annotation_of(now, OWNER) == annotation_of(thing, OWNER) for thing, now in mains)
        and not any(_is_anothers(thing, now) for thing, now in pairs if now is not None)
        and not any(path.startswith("data.") for thing in secrets for path in _changed(key_of(thing), there))
    )


def _resumed(want: Sequence[Object], there: There) -> Iterator[Step]:
    """Yield what is stopped of a job that goes on: a `stop` was cut off, or somebody has suspended the Job of a role."""
    for thing in want:
        if is_main(thing) and is_stopped(there.objects[key_of(thing)]) and there.phase != "succeeded":
            yield _step("change", thing, _STOPPED)


def resumed_as_it_is(thing: Object, step: Step, there: There) -> Object | None:
    """Return what is there if `step` only resumes what another version has made: its template cannot be changed."""
    now = there.objects.get(key_of(thing))
    if (
        now is None
        or step.kind != "change"
        or not is_main(thing)
        or annotation_of(now, SPEC) == annotation_of(thing, SPEC)
    ):
        return None
    return now


def _is_another_versions(thing: Object, now: Object, there: There) -> bool:
    """Say whether another version of jobctl has made an object from the same inputs as those of `thing`."""
    before = _id_of(now)
    return there.unchanged if before.inputs is None else before.is_another_versions(_id_of(thing))


def _id_of(thing: Object) -> ArtefactId:
    return ArtefactId(annotation_of(thing, SPEC) or "", annotation_of(thing, INPUTS), annotation_of(thing, VERSION))


def _is_anothers(thing: Object, now: Object) -> bool:
    """Say whether an object is another owner's. Until 0.2, only objects that make pods named one."""
    return annotation_of(now, OWNER) not in (None, annotation_of(thing, OWNER))


def _changed(key: ObjectKey, there: There) -> list[str]:
    now, would = there.objects.get(key), there.would.get(key)
    return differences(now, would) if now is not None and would is not None else []


def _step(kind: Kind, thing: Mapping[str, Any], cause: str) -> Step:
    return Step(kind, str(key_of(thing)), cause)


def _beside(thing: Object, there: There, but: Sequence[str]) -> Iterator[Step]:
    key = key_of(thing)
    now = there.objects.get(key)
    if now is None:
        yield _step("create", thing, "not there")
    elif _is_anothers(thing, now):
        yield _step("change", thing, f"it is {annotation_of(now, OWNER)}'s")
    elif paths := [path for path in _changed(key, there) if path not in but]:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield _step("change", thing, f"`{paths[0]}`{more} differs")


def _cause(want: Sequence[Object], there: There) -> str | None:
    """Return the change of what pods read when they begin, if there is one: they have to start again. Labels are not read."""
    for thing in want:
        paths = _changed(key_of(thing), there) if thing["kind"] in _MOUNTED else ()
        if any(path.split(".")[0] in _READ and path not in _NOT_A_CHANGE for path in paths):
            return f"{key_of(thing)} changed"
    return None


def _main(thing: Object, there: There, anew: str | None, cause: str | None) -> Iterator[Step]:
    now = there.objects.get(key_of(thing))
    if now is None:
        yield _step("create", thing, "not there")
        return
    if anew is not None:
        cause = anew
    elif annotation_of(now, SPEC) != annotation_of(thing, SPEC):
        cause = _OTHER_VERSION if _is_another_versions(thing, now, there) else "the spec changed"
    elif now["metadata"].get("deletionTimestamp"):
        cause = "it is being removed"
    elif cause is None and is_stopped(now) and there.phase not in ("succeeded", "failed"):
        yield _step("change", thing, _STOPPED)
    elif cause is None and there.phase in ("failed", "stopped"):
        cause = f"the job {'had failed' if there.phase == 'failed' else 'was stopped'}"
    before = annotation_of(now, OWNER)
    if cause is not None:
        yield _step("replace", thing, cause)
    elif before != annotation_of(thing, OWNER):
        yield _step("change", thing, f"it is {before}'s" if before else "it is nobody's")


def _extra(want: Sequence[Object], there: There) -> Iterator[Step]:
    wanted = {key_of(thing) for thing in want}
    for key, thing in there.objects.items():
        if key not in wanted and not is_made_by_another(thing):
            yield _step("remove", thing, "no longer part of the job")


def differences(now: Object, would: Object) -> list[str]:
    """Return the paths at which two forms of an object differ, less what the server alone says."""
    return sorted(_paths("", _said(now), _said(would)))


def _said(thing: Object) -> Object:
    meta = {"annotations": {}, **{key: value for key, value in thing["metadata"].items() if key not in _SERVERS}}
    return {key: value for key, value in {**thing, "metadata": meta}.items() if key != "status"}


def _paths(path: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from _paths(f"{path}.{key}" if path else str(key), one.get(key), other.get(key))
    elif one != other:
        yield path
