"""The generation that an allocation begins with: the first one of the job, or the one after the last that ran."""

from __future__ import annotations

import binascii
import glob
import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.control import age_of, control_problem
from jobctl.jobspec.launcher.system.files import read_json, write_json

if TYPE_CHECKING:
    from typing import Any, Iterable, List, Optional, Tuple

    from jobctl.jobspec.launcher.system.files import Json

ROLE_PORT_DISTANCE = 500  # between the ports of trainers and those of other roles: more than a machine has processes


def age(order: Json) -> Tuple[Any, ...]:
    """Return what grows with every order."""
    base = terms_of(order).get("base")
    own = order["number"], order["rendezvous"]["id"]
    return age_of(order.get("began", 0.0), own, base and (base["number"], base["id"]), order["command"])


def terms_of(order: Json) -> Json:
    """Return what launchers may do by themselves in an order, which those of an earlier version may have written."""
    return order.get("autonomy") or order.get("alone") or {}


def joining(template: Json, nodes: Iterable[int], port: int) -> List[Json]:
    """Return the members that are among `nodes`, in new ranks; their ports follow that of the rendezvous.

    Ports of trainers are apart from those of other roles: any two nodes may be on the same machine.
    """
    wanted, first = set(nodes), template["rendezvous"]["port"]
    members = sorted((m for m in template["members"] if m["node"] in wanted), key=lambda member: member["rank"])
    return [
        {
            **m,
            "rank": rank,
            "ports": [p - first + port + ROLE_PORT_DISTANCE * ("trainer" in m["roles"]) for p in m.get("ports", ())],
        }
        for rank, m in enumerate(members)
    ]


def new_directory(base: str) -> str:
    """Make the first directory `fresh-N` below another one that is not there yet, and return it."""
    number = 1
    while True:
        path = os.path.join(base, "fresh-%d" % number)
        try:
            os.mkdir(path)
        except FileExistsError:
            number += 1
        else:
            return path


class Generations:
    """The control file of the job's launchers, and how far the job was when the last allocation ended."""

    def __init__(self, work: str, job_id: str) -> None:
        self.work, self.job_id = work, job_id
        self.path = os.path.join(work, "run", "control.json")
        # Written by `up`: when the job was brought up, from where generations are counted over all its allocations, and
        # whether it has its restarts before it again. Without such a file somebody has submitted the script by hand.
        self.start_path = os.path.join(work, "run", "start.json")
        self.start: Json = read_json(self.start_path) or {"began": time.time(), "fresh_budget": False}
        self.began = float(self.start["began"])
        self.clock = time.time
        self.overdue: Optional[float] = None  # since when the job's time is over, by a clock that nobody sets
        self.first = True  # whether none has begun in this allocation
        self.cause: Optional[str] = None  # why the next one begins, where the allocation alone does not say it

    def tries(self) -> int:
        """Return how often the job may begin again after a failure."""
        return int(terms_of(read_json(os.path.join(self.work, "control.json")) or {}).get("restarts", 0))

    def newest(self) -> Optional[Json]:
        """Return the newest generation of this job that any launcher knew, None if none has begun."""
        orders: List[Json] = [order for order in [read_json(self.path)] if order]
        for path in glob.glob(os.path.join(self.work, "node-*", "report.json")):
            order = (read_json(path) or {}).get("order")
            orders += [order] if order else []
        own = [o for o in orders if control_problem(o) is None and o.get("began") == self.began]
        return max(own, key=age, default=None)

    def step(self) -> int:
        """Return the last step that any node has told, -1 if none has."""
        paths = glob.glob(os.path.join(self.work, "node-*", "report.json"))
        told = [(read_json(path) or {}).get("progress") for path in paths]
        return max((step for step in told if isinstance(step, int)), default=-1)

    def make_directory(self, path: Optional[str]) -> Optional[OSError]:
        """Make the checkpoint directory. Raises OSError if that cannot be done before the first generation.

        Later, return the error: its file system may be back before the job's processes need it, and they know.
        """
        try:
            if path:
                os.makedirs(path, exist_ok=True)
        except OSError as error:
            if self.first:
                raise
            return error
        return None

    def begin(self, nodes: Iterable[int]) -> Json:
        """Write the control file of the next generation of these nodes. Raises OSError, also for the directory of a fresh run."""
        template = read_json(os.path.join(self.work, "control.json"))
        if template is None:
            raise SystemExit("cannot read %s/control.json" % self.work)
        is_given = template.pop("port_is_given")
        newest = self.newest()
        number = newest["number"] + 1 if newest else 1
        again = newest is not None and not self.start.get("fresh_budget")
        last = terms_of(newest) if newest is not None and again else {}
        spent = {"failures": last.get("failures", []), **({"earlier": last["earlier"]} if last.get("earlier") else {})}
        terms = terms_of(template)
        meeting = template["rendezvous"]
        first, last = terms["ports"]
        port = meeting["port"] if number == 1 and is_given else self.port(number, first, last)
        members = joining(template, nodes, port)
        address = members[0]["address"] if members else meeting["address"]
        name = "%s-%d-%s" % (template["job"], number, os.urandom(4).hex())
        order = {
            **template,
            **self.run_of(template),
            "began": self.began,
            "number": number,
            "command": "run",
            "cause": self.cause or self.why_first(newest),
            "members": members,
            "rendezvous": {
                "address": address,
                "port": port,
                "id": name,
            },
            "autonomy": {**terms, **spent, "base": {"number": number, "id": name}},
        }
        if "alone" in template:  # launchers of an earlier version look there
            order["alone"] = order["autonomy"]
        write_json(self.path, order)
        since = None if self.start.get("fresh_budget") else self.start.get("since")
        self.note(fresh_budget=False, since=self.clock() if since is None else since)
        self.first, self.cause = False, None
        return order

    def why_first(self, newest: Optional[Json]) -> str:
        """Return why the first generation of an allocation begins, after the `newest` one that ran before."""
        if newest is None:
            return "the job is new"
        return "the job was brought up again" if self.start.get("fresh_budget") else "it goes on in another allocation"

    def run_of(self, template: Json) -> Json:
        """Return name and checkpoint directory of the last run that `up --fresh` has begun, nothing if there is none.

        Such a run has a directory of its own below the job's, as long as the job keeps that.
        """
        base = template.get("checkpoint_dir")
        if self.start.get("fresh"):
            name = "%s-%s" % (template["job"], os.urandom(4).hex())
            self.note(fresh=False, run={"run_id": name, "checkpoint_dir": new_directory(base) if base else None})
        run = self.start.get("run")
        if not run:
            return {}
        inside = base and (run["checkpoint_dir"] or "").startswith(base + "/")
        return {"run_id": run["run_id"], "checkpoint_dir": run["checkpoint_dir"] if inside else base}

    def note(self, **changes: Any) -> None:
        """Keep something for the allocations that follow."""
        self.start = {**self.start, **changes}
        write_json(self.start_path, self.start)

    def time_left(self, limit: float) -> float:
        """Return how many seconds of `limit` are left, since the first generation after `up` or `restart`.

        The time between allocations counts.
        """
        since = None if self.start.get("fresh_budget") else self.start.get("since")
        return float("inf") if since is None else float(since) + limit - self.clock()

    def port(self, salt: int, first: int, last: int) -> int:
        """Return a port that other jobs on these nodes are unlikely to have."""
        text = "%s %d" % (self.job_id, salt)
        return int(first + binascii.crc32(text.encode()) % (last - first + 1))
