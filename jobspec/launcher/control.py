"""What a control file says: its problems, its age, and the roles in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from jobctl.jobspec.launcher.files import Json


def control_problem(order: Optional[Json]) -> Optional[str]:
    """Say what is wrong with a control file, None if nothing is."""
    if order is None:
        return "not a JSON object"
    missing = [key for key in ("number", "command", "members", "rendezvous", "grace") if key not in order]
    if missing:
        return "without %s" % ", ".join(missing)
    if order["command"] not in ("run", "stop", "finish"):
        return "unknown command %r: this launcher is older than who wrote it" % (order["command"],)
    return None


def age(order: Json) -> Tuple[float, int, str, int]:
    """Return what grows with every order."""
    return age_of(order.get("began", 0.0), order["number"], order["rendezvous"]["id"], order["command"])


def age_of(began: float, number: int, rendezvous: str, command: str) -> Tuple[float, int, str, int]:
    """Return what grows with every order: within a generation they only go from `run` to `stop` to `finish`.

    Two who were cut off from each other may both have begun one of a number: then one of them counts, the same for all.
    """
    return began, number, rendezvous, ("run", "stop", "finish").index(command)


def merged(order: Json, newest: Json) -> Json:
    """Return `order` as another launcher knows it: its members stay the same."""
    failures = newest["failures"]
    rest = {key: value for key, value in newest.items() if key != "failures"}
    return {**order, **rest, "alone": {**order["alone"], "failures": failures}}


def of_role(order: Json, role: Optional[str]) -> List[Json]:
    """Return the members with a role, in the order of their ranks."""
    return sorted((m for m in order["members"] if role in m["roles"]), key=lambda m: int(m["rank"]))


def place_of(meeting: Json) -> str:
    """Return address:port of a rendezvous; an IPv6 address gets brackets."""
    address = str(meeting["address"])
    return "%s:%s" % ("[%s]" % address if ":" in address else address, meeting["port"])


def endpoints(order: Json, role: Optional[str]) -> List[str]:
    """Return address:port of all processes of a role, in the order of their ranks."""
    return ["%s:%d" % (m["address"], port) for m in of_role(order, role) for port in m.get("ports") or ()]


def etcd_name(order: Json) -> str:
    """Return the job's name where Paddle's launchers meet in etcd, of this time that it is up.

    They remove all that begins with their job's name, so it ends with a dot, which no job's name has.
    """
    return "%s.%d." % (order["job"], order.get("began", 0.0))


def overview(order: Json, launch: Json) -> str:
    """Return the members of a generation as a table for people, and the names of the variables of this node's processes."""
    meeting = order["rendezvous"]
    title = "%s, generation %d: %d nodes, which meet at %s:%s"
    lines = [title % (order["job"], order["number"], len(order["members"]), meeting["address"], meeting["port"])]
    rows = [("NODE", "ROLE", "HOST", "ADDRESS", "RANKS", "PORTS")]
    ranks: Dict[str, int] = {}
    for m in sorted(order["members"], key=lambda m: int(m["rank"])):
        role, first = m["roles"][0], ranks.get(m["roles"][0], 0)
        ranks[role] = first + m["nproc"]
        last = ranks[role] - 1
        span = str(first) if first == last else "%d-%d" % (first, last)
        ports = ",".join(map(str, m.get("ports") or ())) or "-"
        rows.append((str(m["node"]), role, m["host"], m["address"], span, ports))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    names = sorted({name for name, _ in [*launch["env"], *launch.get("process_env", ())]} | set(launch["secrets"]))
    lines.append("this is node %d, on %s; devices %s" % (launch["node"], launch["host"], " ".join(launch["devices"])))
    lines.append("its processes are given %s" % (", ".join(names) or "nothing of their own"))
    return "\n".join(lines) + "\n\n"


def fill(value: Any, slots: Dict[str, str]) -> str:
    """Return a value of the plan: text as it is, a slot filled."""
    return slots[value["slot"]] if isinstance(value, dict) else str(value)


def log_of(name: str, local: Any) -> str:
    """Return the log of a process of a node."""
    return name if name.endswith(".log") else "%s.%s" % (name, local)
