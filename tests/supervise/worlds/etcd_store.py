"""The etcd of a simulated world: three members, each on a machine of its own."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

from jobctl.jobspec.launcher.etcd.client import EtcdError

from .world import DT, Sim

ELECTION = 1.0  # seconds without a quorum after which a leader is none any more


@dataclass
class Item:
    """A key's value."""

    value: str
    created: int
    changed: int
    lease: str


@dataclass
class Store:
    """An etcd of three members, each on a machine of its own."""

    sim: Sim
    names: tuple[str, ...] = ("e0", "e1", "e2")
    dead: set[str] = field(default_factory=set)  # members whose process does not run
    dark: set[str] = field(default_factory=set)  # members whose machine is off
    leader: str | None = "e0"
    without: float = 0.0  # for how long there was no quorum
    items: dict[str, Item] = field(default_factory=dict)
    leases: dict[str, list[float]] = field(default_factory=dict)  # seconds granted, and when it is over
    revision: int = 0

    def runs(self, name: str) -> bool:
        return name not in self.dead and name not in self.dark

    def followers(self, name: str) -> list[str]:
        """Which members a leader on `name` would have."""
        return [one for one in self.names if self.runs(one) and self.sim.is_whole(one, name)] if self.runs(name) else []

    def has_quorum(self, name: str | None) -> bool:
        return name is not None and 2 * len(self.followers(name)) > len(self.names)

    def turn(self) -> None:
        if self.has_quorum(self.leader):
            self.without = 0.0
            for lease in [name for name, (_, end) in self.leases.items() if end <= self.sim.now]:
                self.end(lease)
            return
        self.without += DT
        if self.without < ELECTION and self.leader is not None and self.runs(self.leader):
            return
        self.leader = None
        chosen = next((name for name in self.names if self.has_quorum(name)), None)
        if chosen is not None and self.without >= ELECTION:
            self.leader, self.without = chosen, 0.0
            for lease in self.leases.values():
                lease[1] = self.sim.now + lease[0]

    def end(self, lease: str) -> None:
        self.leases.pop(lease, None)
        self.items = {key: item for key, item in self.items.items() if item.lease != lease}

    def ask(self, host: str, member: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What a member answers to a host. Raises EtcdError."""
        if member in self.dark or not self.sim.is_whole(host, member):
            raise EtcdError("timed out")
        if member in self.dead:
            raise EtcdError("refused") from ConnectionRefusedError()
        follows = self.leader is not None and (member == self.leader or self.sim.is_whole(member, self.leader))
        if path == "/v3/maintenance/status":
            return {"leader": "1"} if follows else {}
        if not follows or not self.has_quorum(self.leader):
            raise EtcdError("timed out")
        return dict(getattr(self, path.rpartition("/")[2])(body))

    # What there is to be asked for, after the last slash of its path.

    def list(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"members": [{"clientURLs": [f"http://{name}"]} for name in self.names]}

    def grant(self, body: dict[str, Any]) -> dict[str, Any]:
        name = str(self.sim.count())
        self.leases[name] = [float(body["TTL"]), self.sim.now + float(body["TTL"])]
        return {"ID": name}

    def keepalive(self, body: dict[str, Any]) -> dict[str, Any]:
        lease = self.leases.get(body["ID"])
        if lease is None:
            return {}
        lease[1] = self.sim.now + lease[0]
        return {"TTL": str(int(lease[0]))}

    def revoke(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["ID"] not in self.leases:
            raise EtcdError("requested lease not found", 404)
        self.end(body["ID"])
        return {}

    def range(self, body: dict[str, Any]) -> dict[str, Any]:
        first, last = (base64.b64decode(body[key]).decode() for key in ("key", "range_end"))
        found = [(key, item) for key, item in sorted(self.items.items()) if first <= key < last]
        return {"kvs": [_shown(key, item) for key, item in found]}

    def deleterange(self, body: dict[str, Any]) -> dict[str, Any]:
        for item in self.range(body)["kvs"]:
            del self.items[base64.b64decode(item["key"]).decode()]
        return {}

    def txn(self, body: dict[str, Any]) -> dict[str, Any]:
        if not all(self.holds(one) for one in body["compare"]):
            return {}
        for one in body["success"]:
            put = one["request_put"]
            lease = put.get("lease", "0")
            if lease != "0" and lease not in self.leases:
                raise EtcdError("requested lease not found", 404)
            key = base64.b64decode(put["key"]).decode()
            self.revision += 1
            old = self.items.get(key)
            self.items[key] = Item(put["value"], old.created if old else self.revision, self.revision, lease)
        return {"succeeded": True}

    def holds(self, one: dict[str, Any]) -> bool:
        item = self.items.get(base64.b64decode(one["key"]).decode())
        match one["target"]:
            case "CREATE":
                return str(item.created if item else 0) == one["create_revision"]
            case "MOD":
                return str(item.changed if item else 0) == one["mod_revision"]
            case _:
                return item is not None and item.lease == one["lease"]


def _shown(key: str, item: Item) -> dict[str, Any]:
    shown = {"key": base64.b64encode(key.encode()).decode(), "value": item.value, "mod_revision": str(item.changed)}
    return shown | ({"lease": item.lease} if item.lease != "0" else {})
