"""The objects of a small Kubernetes cluster: versions, watches, and server-side apply with owners of fields."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]


class Refused(Exception):
    """What the API answers with a Status."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details or {}

    def status(self) -> Object:
        """Return the Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


@dataclass(frozen=True)
class Served:
    """A kind that the server has."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


CORE = (
    Served("", "v1", "Pod", "pods"),
    Served("", "v1", "Service", "services"),
    Served("", "v1", "ConfigMap", "configmaps"),
    Served("", "v1", "Secret", "secrets"),
    Served("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Served("", "v1", "Event", "events"),
    Served("", "v1", "ResourceQuota", "resourcequotas"),
    Served("", "v1", "Namespace", "namespaces", namespaced=False),
    Served("", "v1", "Node", "nodes", namespaced=False),
    Served("batch", "v1", "Job", "jobs"),
    Served("apps", "v1", "Deployment", "deployments"),
)
PADDLE = Served("batch.paddlepaddle.org", "v1", "PaddleJob", "paddlejobs")
OLD_PADDLE = Served("batch.paddlepaddle.org", "v1beta1", "PaddleJob", "paddlejobs")
KUBEFLOW_PADDLE = Served("kubeflow.org", "v1", "PaddleJob", "paddlejobs")
PYTORCH = Served("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
TRAIN_JOB = Served("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
RUNTIME = Served("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes")


def stamp(at: float | None = None) -> str:
    return datetime.fromtimestamp(time.time() if at is None else at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the fields that somebody sets; lists are taken as one."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path, value


@dataclass(frozen=True)
class Manager:
    """Who has set a field: by applying, or by changing just that."""

    name: str
    applies: bool = True
    version: str = ""

    def __str__(self) -> str:
        return f'"{self.name}"' if self.applies else f'"{self.name}" using {self.version}'


@dataclass(frozen=True)
class Change:
    """What became of an object, and how it was before; None where it is new."""

    version: int
    event: str
    served: Served
    namespace: str
    thing: Object
    before: Object | None

    def seen(self, was: bool, is_chosen: bool) -> str | None:
        """Return what a watch tells of it that chose it before or does now, None for nothing."""
        if self.event == "DELETED" or not is_chosen:
            return "DELETED" if was else None
        return "MODIFIED" if was else "ADDED"


@dataclass
class Record:
    """One object, who has set which of its fields, and where it is."""

    served: Served
    namespace: str
    thing: Object
    owners: dict[tuple[str, ...], Manager] = field(default_factory=dict)


class Store:
    """All objects. Every change has a number; watches read the changes since theirs, until those are forgotten."""

    def __init__(self, served: tuple[Served, ...] = CORE) -> None:
        self.served = list(served)
        self.records: dict[tuple[str, str, str, str], Record] = {}
        self.changes: list[Change] = []
        self.told: dict[str, Object] = {}  # what was last told of an object, by its uid
        self.version = 100
        self.forgotten = 100  # changes up to this one are not known any more
        self.changed = threading.Condition()
        self.lingering = 0.05  # seconds that what is deleted in the foreground takes to go
        self.collects = True  # whether anybody ends what hangs on objects that are deleted in the foreground

    def find(self, group: str, version: str, plural: str) -> Served | None:
        """Return what is served at a path, None for nothing."""
        return next(
            (one for one in self.served if (one.group, one.version, one.plural) == (group, version, plural)), None
        )

    def get(self, served: Served, namespace: str, name: str) -> Record:
        record = self.records.get(self._key(served, namespace, name))
        if record is None:
            message = f'{served.resource} "{name}" not found'
            raise Refused(404, "NotFound", message, _named(served, name))
        return record

    def _key(self, served: Served, namespace: str, name: str) -> tuple[str, str, str, str]:
        return served.group, served.plural, namespace if served.namespaced else "", name

    def list(self, served: Served, namespace: str, selector: str = "") -> list[Object]:
        """Return copies of the objects that a label selector (only `=`) chooses."""
        with self.changed:
            found = [
                record.thing
                for key, record in sorted(self.records.items())
                if key[:2] == (served.group, served.plural)
                and (not served.namespaced or record.namespace == namespace)
                and chosen(record.thing, selector)
            ]
            return copy.deepcopy(found)

    # Changing.

    def create(self, served: Served, namespace: str, thing: Object) -> Object:
        """Create an object. Raises Refused 409 if there is one of its name."""
        with self.changed:
            self._refuse_without_namespace(served, namespace)
            name = thing["metadata"]["name"]
            if self._key(served, namespace, name) in self.records:
                raise Refused(409, "AlreadyExists", f'{served.resource} "{name}" already exists', _named(served, name))
            return self.put(served, namespace, {k: v for k, v in thing.items() if k != "status"})

    def _refuse_without_namespace(self, served: Served, namespace: str) -> None:
        if served.namespaced and ("", "namespaces", "", namespace) not in self.records:
            message = f'namespaces "{namespace}" not found'
            raise Refused(404, "NotFound", message, {"name": namespace, "kind": "namespaces"})

    def put(self, served: Served, namespace: str, thing: Object, manager: str = "test") -> Object:
        """Create or replace an object, as a controller or a person does."""
        with self.changed:
            key = self._key(served, namespace, thing["metadata"]["name"])
            before = self.records.get(key)
            meta = {
                "uid": before.thing["metadata"]["uid"] if before else str(uuid.uuid4()),
                "creationTimestamp": before.thing["metadata"]["creationTimestamp"] if before else stamp(),
                **({"namespace": namespace} if served.namespaced else {}),
                **thing["metadata"],
            }
            whole = {"apiVersion": served.api_version, "kind": served.kind, **copy.deepcopy(thing), "metadata": meta}
            record = Record(served, namespace, whole, before.owners if before else {})
            for path, _ in leaves({k: v for k, v in thing.items() if k not in ("status", "metadata")}):
                record.owners[path] = Manager(manager, False, served.api_version)
            self.records[key] = record
            self._note("MODIFIED" if before else "ADDED", record)
            return copy.deepcopy(record.thing)

    def patch(self, served: Served, namespace: str, name: str, status: Object) -> Object:
        """Set parts of an object's status."""
        with self.changed:
            record = self.get(served, namespace, name)
            record.thing = {**record.thing, "status": {**record.thing.get("status", {}), **status}}
            self._note("MODIFIED", record)
            return copy.deepcopy(record.thing)

    def apply(
        self, served: Served, namespace: str, name: str, body: Object, manager: str, *, force: bool, dry_run: bool
    ) -> tuple[Object, bool]:
        """Apply on the server's side; return the object, and whether it is new. Raises Refused 409 for conflicts."""
        with self.changed:
            self._refuse_without_namespace(served, namespace)
            if body["metadata"].get("namespace", namespace) != namespace:
                message = "the namespace of the provided object does not match the namespace sent on the request"
                raise Refused(400, "BadRequest", message)
            before = self.records.get(self._key(served, namespace, name))
            record = copy.deepcopy(before) if before else self._new(served, namespace, name)
            said = {k: v for k, v in body.items() if k not in ("apiVersion", "kind", "status")}
            self._merge(record, said, Manager(manager), force)
            self._refuse_immutable(before, record)
            if before is not None and before.thing == record.thing:
                before.owners |= record.owners
                return copy.deepcopy(before.thing), False
            if not dry_run:
                self.records[self._key(served, namespace, name)] = record
                self._note("MODIFIED" if before else "ADDED", record)
            return copy.deepcopy(record.thing), before is None

    def merge(self, served: Served, namespace: str, name: str, body: Object, manager: str) -> Object:
        """Change parts of an object (RFC 7386). Raises Refused where it is another by now, or has been changed."""
        with self.changed:
            record = self.get(served, namespace, name)
            record.thing, meta = copy.deepcopy(record.thing), record.thing["metadata"]
            said = body.get("metadata") or {}
            if said.get("uid") not in (None, meta["uid"]):
                words = f'Invalid value: "{said["uid"]}": field is immutable'
                causes = [{"reason": "FieldValueInvalid", "message": words, "field": "metadata.uid"}]
                raise Refused(
                    422, "Invalid", f'{served.kind} "{name}" is invalid: metadata.uid: {words}', {"causes": causes}
                )
            if said.get("resourceVersion") not in (None, meta["resourceVersion"]):
                message = f'Operation cannot be fulfilled on {served.resource} "{name}": the object has been modified'
                raise Refused(409, "Conflict", message, _named(served, name))
            for path, value in leaves(body):
                if _at(record.thing, path) != value:
                    _set(record.thing, path, value)
                    record.owners[path] = Manager(manager, False, served.api_version)
            if "deletionTimestamp" in meta and not record.thing["metadata"].get("finalizers"):
                self._remove(record)
            else:
                self._note("MODIFIED", record)
            return copy.deepcopy(record.thing)

    def _new(self, served: Served, namespace: str, name: str) -> Record:
        meta = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": stamp()}
        thing: Object = {"apiVersion": served.api_version, "kind": served.kind, "metadata": meta}
        if served.namespaced:
            meta["namespace"] = namespace
        if served.kind == "Service":  # what the server fills in by itself
            thing["spec"] = {"type": "ClusterIP", "sessionAffinity": "None"}
        return Record(served, namespace, thing)

    def _merge(self, record: Record, said: Object, manager: Manager, force: bool) -> None:
        fields = {
            path: value
            for path, value in leaves(said)
            if path[:2] not in (("metadata", "name"), ("metadata", "namespace"))
        }
        conflicts = [
            path
            for path, value in fields.items()
            if record.owners.get(path, manager) != manager and _at(record.thing, path) != value
        ]
        if conflicts and not force:
            causes = [
                {
                    "reason": "FieldManagerConflict",
                    "message": f"conflict with {record.owners[path]}",
                    "field": "." + ".".join(path),
                }
                for path in conflicts
            ]
            told = "; ".join(f"{one['message']}: {one['field']}" for one in causes)
            message = f"Apply failed with {len(causes)} conflict{'s' if len(causes) > 1 else ''}: {told}"
            raise Refused(409, "Conflict", message, {"causes": causes})
        gone = [path for path, owner in record.owners.items() if owner == manager and path not in fields]
        for path in gone:
            _drop(record.thing, path)
            del record.owners[path]
        for path, value in fields.items():
            _set(record.thing, path, copy.deepcopy(value))
            record.owners[path] = manager

    def _refuse_immutable(self, before: Record | None, now: Record) -> None:
        if before is None or now.served.kind != "Job" or now.served.group != "batch":
            return
        if before.thing["spec"].get("template") != now.thing["spec"].get("template"):
            message = f'Job.batch "{now.thing["metadata"]["name"]}" is invalid: spec.template: Invalid value: field is immutable'
            raise Refused(422, "Invalid", message)

    def delete(self, served: Served, namespace: str, name: str, how: Object) -> Object:
        """Delete an object: at once, or after what hangs on it and whoever else holds it. Return what is told of that."""
        with self.changed:
            record = self.get(served, namespace, name)
            meta = record.thing["metadata"]
            uid = (how.get("preconditions") or {}).get("uid")
            if uid not in (None, meta["uid"]):
                message = f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']})"
                raise Refused(409, "Conflict", message, _named(served, name))
            foreground = how.get("propagationPolicy") == "Foreground"
            held = [*(meta.get("finalizers") or ()), *(["foregroundDeletion"] if foreground else ())]
            if not held:
                self._remove(record)
                details = {**_named(served, name), "uid": meta["uid"]}
                return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}
            if "deletionTimestamp" not in meta:
                record.thing = copy.deepcopy(record.thing)
                record.thing["metadata"] |= {"deletionTimestamp": stamp(), "finalizers": list(dict.fromkeys(held))}
                self._note("MODIFIED", record)
                if foreground and self.collects:
                    threading.Timer(self.lingering, self._finalize, [record]).start()
            return copy.deepcopy(record.thing)

    def _finalize(self, record: Record) -> None:
        with self.changed:
            self.drop_owned(record)
            self._remove(record)

    def drop_owned(self, record: Record) -> None:
        """Remove what was made for an object, and for that."""
        with self.changed:
            uid = record.thing["metadata"]["uid"]
            for other in list(self.records.values()):
                owners = other.thing["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == uid for owner in owners):
                    self.drop_owned(other)
                    self._remove(other)

    def _remove(self, record: Record) -> None:
        key = self._key(record.served, record.namespace, record.thing["metadata"]["name"])
        if self.records.pop(key, None) is not None:
            self._note("DELETED", record)

    def _note(self, event: str, record: Record) -> None:
        self.version += 1
        meta = record.thing["metadata"]
        meta["resourceVersion"] = str(self.version)
        thing = copy.deepcopy(record.thing)
        before = self.told.pop(meta["uid"], None)
        if event != "DELETED":
            self.told[meta["uid"]] = thing
        self.changes.append(Change(self.version, event, record.served, record.namespace, thing, before))
        self.changed.notify_all()

    def forget(self) -> None:
        """Forget all changes so far: watches from before them are told that they are gone."""
        with self.changed:
            self.version += 1
            self.forgotten = self.version
            self.changes = []
            self.changed.notify_all()


def _named(served: Served, name: str) -> Object:
    return {"name": name, "group": served.group, "kind": served.plural}


def chosen(thing: Object, selector: str) -> bool:
    labels = thing["metadata"].get("labels") or {}
    pairs = [pair.split("=", 1) for pair in selector.split(",") if pair]
    return all(labels.get(key) == value for key, value in pairs)


def _at(thing: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        thing = thing.get(key) if isinstance(thing, dict) else None
    return thing


def _set(thing: Object, path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        below = thing.get(key)
        thing[key] = thing = below if isinstance(below, dict) else {}
    thing[path[-1]] = value


def _drop(thing: Object, path: tuple[str, ...]) -> None:
    for key in path[:-1]:
        thing = thing.get(key) or {}
    thing.pop(path[-1], None)
