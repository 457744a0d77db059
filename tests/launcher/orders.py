"""Orders of a supervisor, as launchers read them."""

from __future__ import annotations

from jobctl.jobspec.launcher.order.order import Order


def order(number: int = 1, command: str = "run") -> Order:
    """The order of a supervisor for three nodes."""
    name = f"g{number}"
    base = {"number": number, "id": name}
    members = [
        {"node": node, "rank": node, "roles": ["trainer"], "host": f"h{node}", "address": "127.0.0.1", "nproc": 1}
        for node in range(3)
    ]
    data = {
        "job": "job",
        "run_id": "job-1",
        "began": 5.0,
        "number": number,
        "command": command,
        "grace": 2.0,
        "members": members,
        "rendezvous": {"address": "127.0.0.1", "port": 1, "id": name},
        "autonomy": {"restarts": 3, "rules": [], "ports": [20000, 29999], "failures": [], "base": base},
    }
    return Order.from_json(data)
