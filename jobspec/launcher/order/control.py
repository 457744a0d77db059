"""What a control file says: its problems, its age, and an overview for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.system.files import Json


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


def age_of(
    began: float,
    own: Tuple[int, str],
    base: Optional[Tuple[int, str]],
    command: str,
    moved: int = 0,
    pause: Optional[int] = None,
) -> Tuple[Any, ...]:
    """Return what grows with every order: within a generation they only go from `run` to `stop` to `finish`.

    `own` and `base` are number and id of a generation, and of that of a supervisor or command which it goes back to. So
    what these order is newer than all that launchers have begun before, whatever the numbers are. Two which were cut
    off from each other may both have begun one of a number: then one of them counts, the same for all. `moved` is how
    often launchers have moved nodes since the base: nobody goes back from such a generation to one that knows less. A
    `pause`, the stop for a change, is newer than what runs and older than any other stop: launchers may follow it.
    """
    until = ("run", "stop", "finish").index(command)
    if base is None:
        return began, *own, until
    steps = moved + (pause or 0)
    return began, *base, (0 if pause else until) + (1 - 1 / (1 + steps) if steps else 0), *own


def etcd_name(job: str, began: float) -> str:
    """Return the job's name where Paddle's launchers meet in etcd, of this time that it is up.

    They remove all that begins with their job's name, so it ends with a dot, which no job's name has.
    """
    return "%s.%d." % (job, began)


def overview(order: Order, launch: Launch) -> str:
    """Return the members of a generation as a table for people, and the names of the variables of this node's processes."""
    title = "%s, generation %d: %d nodes, which meet at %s:%s"
    at = order.rendezvous
    lines = [title % (order.job, order.number, len(order.members), at.address, at.port)]
    rows = [("NODE", "ROLE", "HOST", "ADDRESS", "RANKS", "PORTS")]
    ranks: Dict[str, int] = {}
    for m in sorted(order.members, key=lambda m: m.rank):
        role, first = m.roles[0], ranks.get(m.roles[0], 0)
        ranks[role] = first + m.nproc
        last = ranks[role] - 1
        span = str(first) if first == last else "%d-%d" % (first, last)
        ports = ",".join(map(str, m.ports or ())) or "-"
        rows.append((str(m.node), role, m.host, m.address, span, ports))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    names = sorted({name for name, _ in [*launch.env, *launch.process_env]} | set(launch.secrets))
    lines.append("this is node %d, on %s; devices %s" % (launch.node, launch.host, " ".join(launch.devices)))
    lines.append("its processes are given %s" % (", ".join(names) or "nothing of their own"))
    return "\n".join(lines) + "\n\n"


def log_of(name: str, local: Any) -> str:
    """Return the log of a process of a node."""
    return name if name.endswith(".log") else "%s.%s" % (name, local)
