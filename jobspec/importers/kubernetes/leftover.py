"""The parts of a manifest that have no place in a spec: all that nobody read, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobctl.jobspec.importers.draft import Draft
from jobctl.jobspec.importers.kubernetes.document import Document, KeyPath, differences, says_something
from jobctl.jobspec.importers.names import is_secret, looks_secret
from jobctl.jobspec.importers.notes import NO_PLACE
from jobctl.jobspec.records import dataclass

_MAX_VALUE_CHARS = 40
_OURS = "app.kubernetes.io/managed-by"
_PODS, _CONTAINER = "of the pods", "of the container"


def is_ours(made: Any) -> bool:
    """Say whether an object is one of those that `render` makes."""
    labels = (made.get("metadata") or {}).get("labels") or {} if isinstance(made.get("metadata"), Mapping) else {}
    return isinstance(labels, Mapping) and labels.get(_OURS) == "jobctl"


@dataclass(frozen=True, slots=True)
class Row:
    """Why a key is left out. Without `why` it says nothing that jobctl does not do anyway, if it is one of `values`."""

    where: str  # a regular expression for `key.key place`
    why: str = ""
    values: tuple[Any, ...] = ()
    ours: bool = False  # whether it counts in a manifest of jobctl's only


# fmt: off
_ROWS = (
    # What the cluster writes, or stands there where nothing is said.
    Row(r"(apiVersion|kind|status)(\..*)? "),
    Row(r"metadata\.(creationTimestamp|uid|resourceVersion|generation|selfLink|managedFields)(\..*)? "),
    Row(rf"name {_CONTAINER}"),
    Row(rf"dnsPolicy {_PODS}", values=("ClusterFirst",)),
    Row(rf"schedulerName {_PODS}", values=("default-scheduler",)),
    Row(rf"terminationMessagePath {_CONTAINER}", values=("/dev/termination-log",)),
    Row(rf"terminationMessagePolicy {_CONTAINER}", values=("File",)),
    Row(rf"imagePullPolicy {_CONTAINER}", values=("IfNotPresent",)),
    Row(rf"volumes\[\d+\]\.hostPath\.type {_PODS}", values=("Directory",)),
    Row(r"spec\.elasticPolicy\.rdzvBackend ", values=("c10d",)),
    Row(r"spec\.\w+\.(Master|Worker)\.restartPolicy ", values=("OnFailure", "Never")),
    Row(rf"restartPolicy {_PODS}", values=("OnFailure",)),
    Row(r"spec\.(runPolicy\.)?suspend ", values=(False,)),
    Row(rf"(hostNetwork|hostPID|hostIPC|shareProcessNamespace) {_PODS}", values=(False,)),
    Row(rf"(stdin|stdinOnce|tty|securityContext\.privileged) {_CONTAINER}", values=(False,)),
    # What `render` writes.
    Row(rf"enableServiceLinks {_PODS}", values=(False,)),
    Row(rf"restartPolicy {_PODS}", ours=True),
    # Of these there is something to say.
    Row(rf"\w+Probe(\..*)? {_CONTAINER}", "`recovery.hang_timeout` finds processes that make no progress"),
    Row(rf"dns(Policy|Config)(\..*)? {_PODS}", "on hosts names are resolved as the host does"),
    Row(rf"topologySpreadConstraints(\..*)? {_PODS}", "on hosts, hosts.txt says where nodes run; in a cluster `kubernetes.affinity` does"),
    Row(rf"ports\S* {_CONTAINER}", "containers use the host's network, and jobctl chooses free ports"),
    Row(rf"lifecycle(\..*)? {_CONTAINER}", "`setup` is what runs before the first start"),
    Row(r"(\S*\.)?restartPolicy .*", "`recovery` says what is started again, and how often"),
    Row(r"spec\.(runPolicy\.)?suspend ", "`jobctl up` starts it, `jobctl stop` stops it"),
    Row(rf"volumes\[\d+\]\.hostPath\.type {_PODS}", "nothing is created on hosts: the path has to be there"),
    Row(rf"volumes\S* {_PODS}", "no mount of the container says this"),
    Row(rf"securityContext(\..*)? ({_PODS}|{_CONTAINER})", "`container` has `user`, `cap_add` and `options`"),
)
# fmt: on


def tell(draft: Draft, job: Document, roles: Mapping[str, KeyPath], pod: KeyPath, container: KeyPath) -> None:
    """Note what was read by nobody. `roles` are the places of the replicas; those of `pod` were read, one container too."""
    ours = is_ours(job.raw)
    others = [path for path in roles.values() if path != pod]
    for path, value in job.unread():
        if not any(path[: len(other) + 1] == (*other, "template") for other in others):
            _note(draft, _named(path, pod, container), value, ours)
    _others(draft, job.raw, roles, pod, ours)


def _others(draft: Draft, raw: Any, roles: Mapping[str, KeyPath], pod: KeyPath, ours: bool) -> None:
    """Note in what the pods of a role are others than those that were read: the nodes of a job are all alike."""
    first = _inside(raw, (*pod, "template"))
    for role, path in roles.items():
        told = [
            (_dotted(where[1:] if where[:1] == ("spec",) else where), value)
            for where, value in differences(_inside(raw, (*path, "template")), first)
            if path != pod and "JOBCTL_ROLE" not in where and not (ours and where[:2] == ("metadata", "labels"))
        ]
        for where, value in told:
            draft.drop(f"{_shown(where, value)} of `{role}`", "the nodes of a job are all alike")


def _inside(raw: Any, path: KeyPath) -> Any:
    for key in path:
        raw = raw[key]
    return raw


def _named(path: KeyPath, pod: KeyPath, container: KeyPath) -> tuple[str, str]:
    """Return a path as people say it: where it begins, they say of what it is."""
    if path[: len(container)] == container:
        return _dotted(path[len(container) :]), _CONTAINER
    for length, place in ((2, ("template", "spec")), (1, ("template",))):
        if path[: len(pod) + length] == (*pod, *place):
            return _dotted(path[len(pod) + length :]), _PODS
    return _dotted(path), ""


def _dotted(path: Sequence[str | int]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def _note(draft: Draft, named: tuple[str, str], value: Any, ours: bool) -> None:
    where, place = named
    why = next(_reasons(f"{where} {place}", value, ours), NO_PLACE)
    if why:
        draft.drop(f"{_shown(where, value)} {place}".rstrip(), why)


def _reasons(text: str, value: Any, ours: bool) -> Iterator[str]:
    for row in _ROWS:
        if re.fullmatch(row.where, text) and (not row.values or value in row.values) and (ours or not row.ours):
            yield row.why


def _shown(where: str, value: Any) -> str:
    """Return a key, with its value where that is short and no secret."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    secret = is_secret(where.rpartition(".")[2], text) or looks_secret(f"{where} {text}")
    plain = isinstance(value, str | int | float) and len(text) <= _MAX_VALUE_CHARS and not secret
    return f"{where}={text}" if plain and says_something(value) else where
