"""A cluster that speaks the parts of the Kubernetes API that jobctl uses, in the forms that its documentation gives.

https://kubernetes.io/docs/reference/using-api/api-concepts/: lists in pages, watches with bookmarks and 410, server-side
apply, reviews of rights. test_contract.py holds it to the answers of real servers.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from typing import Any

from tests.kube.backend import REVIEWS, Answer, Asked
from tests.kube.store import CORE, Object, Refused, Served, Store, chosen

NOWHERE = "404 page not found\n"  # what is said of a path that nothing is served at
_GROUP = re.compile(r"/apis/(?P<group>[^/]+)")
_VERSION = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/?")
_MARK = 0.2  # seconds between two looks of a watch at whether it is to end


class Fake:
    """A cluster with the namespace `ml` and three nodes."""

    which, namespace = "fake", "ml"

    def __init__(self, served: tuple[Served, ...] = CORE) -> None:
        self.store = Store(served)
        self.version = "v1.34.1"
        self.closing = False
        self.make_namespace("ml")
        has = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}
        for number in range(3):
            node = {"metadata": {"name": f"worker-{number}"}, "status": {"allocatable": has}}
            self.store.put(self.find("Node"), "", node)

    @property
    def served(self) -> list[Served]:
        return self.store.served

    def make_namespace(self, name: str) -> None:
        self.store.put(self.find("Namespace"), "", {"metadata": {"name": name}, "status": {"phase": "Active"}})

    def find(self, kind: str, group: str | None = None) -> Served:
        return next(one for one in self.store.served if one.kind == kind and group in (None, one.group))

    def close(self) -> None:
        self.closing = True
        with self.store.changed:
            self.store.changed.notify_all()

    def answer(self, asked: Asked) -> Answer:
        found = self._discovery(asked.path) if asked.method == "GET" else None
        if found is not None:
            return Answer(200, found)
        if asked.path == REVIEWS:
            return Answer(201, {**asked.body, "status": {"allowed": True}})
        served = self.store.find(asked.group, asked.version, asked.plural)
        if served is None:
            return Answer(404, NOWHERE)
        try:
            return self._objects(served, asked)
        except Refused as refused:
            return Answer(refused.code, refused.status())

    def _discovery(self, path: str) -> Object | None:
        if path == "/version":
            return {"major": "1", "minor": "34", "gitVersion": self.version}
        if (found := _GROUP.fullmatch(path)) is not None:
            group = found["group"]
            versions = sorted({one.version for one in self.served if one.group == group})
            told = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
            return {"kind": "APIGroup", "name": group, "versions": told} if versions else None
        if (found := _VERSION.fullmatch(path)) is not None:
            where = found["group"] or "", found["version"]
            kinds = [one for one in self.served if (one.group, one.version) == where]
            told = [{"name": k.plural, "kind": k.kind, "namespaced": k.namespaced, "verbs": []} for k in kinds]
            return {"kind": "APIResourceList", "resources": told} if kinds else None
        return None

    def _objects(self, served: Served, asked: Asked) -> Answer:
        store, inside, name = self.store, asked.namespace, asked.name
        if asked.verb == "watch":
            return self._watch(served, asked)
        if asked.verb == "list":
            return Answer(200, self._list(served, asked))
        if asked.verb == "get":
            return Answer(200, store.get(served, inside, name).thing)
        if asked.verb == "create" and asked.sub == "binding":
            store.merge(served, inside, name, {"spec": {"nodeName": asked.body["target"]["name"]}}, "scheduler")
            return Answer(201, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if asked.verb == "create":
            return Answer(201, store.create(served, inside, asked.body))
        if asked.verb == "delete" and asked.body.get("dryRun") == ["All"]:
            return Answer(200, store.get(served, inside, name).thing)
        if asked.verb == "delete":
            return Answer(200, store.delete(served, inside, name, asked.body))
        return self._patch(served, asked)

    def _patch(self, served: Served, asked: Asked) -> Answer:
        manager = asked.query.get("fieldManager", "unknown")
        where = served, asked.namespace, asked.name
        if asked.content == "application/merge-patch+json":
            if asked.sub == "status":
                return Answer(200, self.store.patch(*where, asked.body["status"]))
            return Answer(200, self.store.merge(*where, asked.body, manager))
        assert asked.content == "application/apply-patch+yaml"
        force, dry = asked.query.get("force") == "true", asked.query.get("dryRun") == "All"
        thing, is_new = self.store.apply(*where, asked.body, manager, force=force, dry_run=dry)
        return Answer(201 if is_new else 200, thing)

    def _list(self, served: Served, asked: Asked) -> Object:
        store, query = self.store, asked.query
        begin = _position(query["continue"]) if "continue" in query else 0
        with store.changed:  # a watch goes on from the version: nothing may come between
            items = store.list(served, asked.namespace, query.get("labelSelector", ""))
            version = store.version
        end = begin + int(query.get("limit") or 500)
        for item in items:  # items of a list do not say what they are
            del item["apiVersion"], item["kind"]
        more = {"continue": base64.urlsafe_b64encode(json.dumps({"start": end}).encode()).decode()}
        meta: Any = {"resourceVersion": str(version)} | (more if end < len(items) else {})
        kind = {"kind": f"{served.kind}List", "apiVersion": served.api_version}
        return {**kind, "metadata": meta, "items": items[begin:end]}

    def _watch(self, served: Served, asked: Asked) -> Answer:
        return Answer(200, lines=(json.dumps(event).encode() for event in self._events(served, asked)))

    def _events(self, served: Served, asked: Asked) -> Iterator[Object]:
        """Yield the events of a watch. What begins or ceases to be chosen comes or goes, as far as this watch knows."""
        store, query = self.store, asked.query
        selector, version = query.get("labelSelector", ""), int(query.get("resourceVersion") or 0)
        if version < store.forgotten:
            gone = Refused(410, "Expired", f"too old resource version: {version} ({store.forgotten})")
            yield {"type": "ERROR", "object": gone.status()}
            return
        deadline = time.monotonic() + float(query.get("timeoutSeconds") or 60)
        while time.monotonic() < deadline and not self.closing:
            with store.changed:
                if version < store.forgotten:
                    return  # this watch is ended; the next one will be told
                fresh = [change for change in store.changes if change.version > version]
                if not fresh:
                    store.changed.wait(_MARK)
            for change in fresh:
                version = change.version
                if change.served.resource == served.resource and change.namespace == asked.namespace:
                    was = change.before is not None and chosen(change.before, selector)
                    event = change.seen(was, chosen(change.thing, selector))
                    if event:
                        yield {"type": event, "object": change.thing}
            if fresh and query.get("allowWatchBookmarks") == "true":
                mark = {"kind": served.kind, "metadata": {"resourceVersion": str(version)}}
                yield {"type": "BOOKMARK", "object": mark}


def _position(token: str) -> int:
    """Return where a list is to go on."""
    try:
        return int(json.loads(base64.urlsafe_b64decode(token))["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(400, "BadRequest", f"invalid continue token: {error}") from error
