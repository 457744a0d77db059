"""Nodes whose launchers keep their leases in an etcd."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.launcher.conftest import PATIENCE, Node
from tests.tools.etcd import Etcd
from tests.tools.waiting import promptly

# Says which generation begins, and stays; a file `end` ends it.
STAY = """\
import os, sys, time
print("generation", os.environ["JOBCTL_GENERATION"], flush=True)
while not os.path.exists("end"):
    time.sleep(0.02)
"""
PREFIX = "/jobctl/me@here/demo"
TIMEOUT = 15.0  # seconds, longer than anything stands still


ALL: list[EtcdNode] = []


class EtcdNode(Node):
    """A node whose launcher keeps its lease in etcd. Nobody answers its ticks."""

    def __init__(self, root: Path, python: str, cluster: Etcd, host: str = "a") -> None:
        super().__init__(root, python)
        ALL.append(self)
        self.supervisor.answering = False
        self.cluster = cluster
        self.launch |= {"host": host, "command": self.script(STAY)}
        self.launch["etcd"] = {
            "endpoints": cluster.endpoints,
            "prefix": PREFIX,
            "tls": cluster.tls or None,
            "user": None,
            "password": None,
        }

    def begin(self, number: int = 1, restarts: int = 3, **changes: Any) -> None:
        """Hand it a generation, as a supervisor does."""
        host = changes.pop("host", self.launch["host"])
        alone = {"restarts": restarts, "rules": [], "ports": [20000, 29999], "failures": []}
        one = {"node": 0, "rank": 0, "roles": ["trainer"], "host": host, "address": "127.0.0.1", "nproc": 1}
        changes = {"members": [one], "began": 1.0, "host_timeout": TIMEOUT, "autonomy": alone, **changes}
        self.order(number, **changes)

    def kill(self) -> None:
        """Kill its process, as a fault would."""
        os.kill(self.pid(), signal.SIGKILL)

    def pid(self) -> int:
        """The pid of its process, as soon as there is one."""
        found: int = promptly(lambda: next((process["pid"] for process in self.report()["processes"]), None))
        return found

    def generation(self) -> dict[str, Any]:
        """The generation in etcd."""
        found: dict[str, Any] = self.cluster.keys(f"{PREFIX}/")[f"{PREFIX}/generation"]
        return found


def end(*nodes: EtcdNode) -> None:
    """End the launchers of nodes, and see that nothing of them is left."""
    for node in nodes:
        for process in node.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
            assert process.stdout is not None
            process.stdout.close()
        node.gone()
