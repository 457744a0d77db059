"""Objects of wanted names that are someone else's: they are left alone, also if they are made just now."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from jobctl.jobspec.deploy.kubernetes.api import FIELD_MANAGER, Api
from jobctl.jobspec.deploy.kubernetes.kinds import Object, key_of
from jobctl.jobspec.deploy.kubernetes.manifests import is_main
from jobctl.jobspec.deploy.kubernetes.problems import ApiError
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.render.marks import JOB, OWNER, annotation_of, label_of


class Foreign(DeployError):
    """An object of a wanted name that is someone else's."""


class HalfMade(DeployError):
    """The first object of a job exists, but `up` failed before it was sure of it."""


def foreign(place: str, found: Object) -> Foreign:
    """Return the error that says whose an object is."""
    whose = annotation_of(found, OWNER) or label_of(found, JOB)
    belongs = f" and belongs to {whose}" if whose else ", which jobctl did not make"
    return Foreign(
        f"{place}: there is a {key_of(found)} already{belongs}: it is left alone",
        "give the job another `name`, or `--take-over` if it is yours nevertheless",
    )


def create_first(api: Api, place: str, thing: Object, look: Callable[[], Iterable[Object]]) -> Object:
    """Create the first object of a job. Raises HalfMade, and Foreign if someone else has begun a job of its name meanwhile.

    What two users apply with the same field manager, the later one takes over. So it is created with a manager of this
    process alone: of what another owner has made, at least the owner is in conflict with that. Then the usual manager gets
    the same fields, and that one lets go of them. Another owner may begin with another object: a process that sees one
    beside its own takes its own back, so at most one of them goes on.
    """
    manager = f"{FIELD_MANAGER}-{secrets.token_hex(4)}"
    try:
        made = api.apply(thing, manager=manager)
    except ApiError as error:
        found = api.find(api.kind_of(thing), key_of(thing).name) if error.status == 409 else None
        if found is None or annotation_of(found, OWNER) == annotation_of(thing, OWNER):
            raise
        raise foreign(place, found) from error
    try:
        return _claimed(api, place, thing, made, manager, look)
    except Foreign:
        raise
    except DeployError as error:
        raise HalfMade(error.message, error.hint) from error


def _claimed(
    api: Api, place: str, thing: Object, made: Object, manager: str, look: Callable[[], Iterable[Object]]
) -> Object:
    """Delete the new object if another owner has begun. Otherwise, give its fields to the usual manager."""
    theirs = [one for one in look() if annotation_of(one, OWNER) not in (None, annotation_of(thing, OWNER))]
    if theirs:
        api.delete(api.kind_of(made), key_of(made).name, made["metadata"]["uid"])
        raise foreign(place, theirs[0])
    try:
        whole = api.apply(thing, force=not is_main(thing))
    except ApiError as error:
        # A webhook has changed what nobody may change of what makes pods: it stays as it is.
        if is_main(thing) and error.status in (409, 422):
            return made
        raise
    meta = {key: thing["metadata"][key] for key in ("name", "namespace") if key in thing["metadata"]}
    api.apply({"apiVersion": thing["apiVersion"], "kind": thing["kind"], "metadata": meta}, manager=manager)
    return whole
