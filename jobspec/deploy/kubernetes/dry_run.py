"""Ask the API server, before anything ends, whether it lets that end and accepts what takes its place."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Container, Sequence

from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.kinds import Object, key_of
from jobctl.jobspec.deploy.kubernetes.problems import ApiError

# Refusals of the dry run alone: an object of another name counts against a quota and needs a right of its own, and not
# every admission webhook can be asked so. https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
_UNABLE = "does not support dry run"
_OF_DRY_RUNS = ("exceeded quota", "no right to", _UNABLE)


def refuse_kept(api: Api, things: Sequence[Object]) -> None:
    """Raise ApiError for an object that the server would not delete; nothing is changed."""
    for thing in things:
        try:
            api.delete(api.kind_of(thing), key_of(thing).name, thing["metadata"]["uid"], dry_run=True)
        except ApiError as error:
            if _UNABLE not in error.message:
                raise


def refuse_unaccepted(api: Api, things: Sequence[Object], replaced: Container[str], *, force: bool) -> None:
    """Raise ApiError for an object that the server would not take; nothing is changed.

    `replaced` has the keys of those that are removed first. Such a one is tried under another name: much of one that is
    there may not be changed.
    """
    for thing in things:
        name = key_of(thing).name
        tried = _renamed(thing) if str(key_of(thing)) in replaced else thing
        try:
            api.apply(tried, dry_run=True, force=force)
        except ApiError as error:
            if not any(words in error.message for words in _OF_DRY_RUNS):
                raise error.about(key_of(tried).name, name) from error


def _renamed(thing: Object) -> Object:
    """Return an object under a name that nothing has, and that is as long as its own, or shorter than any limit."""
    other = copy.deepcopy(thing)
    name = other["metadata"]["name"]
    other["metadata"]["name"] = f"{name[: max(1, len(name) - 9)].rstrip('-.')}-{secrets.token_hex(4)}"
    return other
