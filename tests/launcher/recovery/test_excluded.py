"""A launcher in an allocation whose node a rule has leave its machine: it ends, and the next one begins another generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobctl.jobspec.launcher.system.network import free_port
from jobctl.jobspec.launcher.system.processes import EXIT_MOVES
from tests.launcher.conftest import PATIENCE, Node
from tests.tools.waiting import promptly

from .alone import ALONE

RULES = [{"exit": 3, "log": None, "do": "exclude_host"}]
FAILS_ONCE = """
import os, sys, time
sys.exit(3) if os.environ["JOBCTL_GENERATION"] == "1" else time.sleep(600)
"""


def start(node: Node, machine: str) -> Any:
    """Start the launcher of the node on a machine, as a node runner does."""
    own: Path = node.root / "hosts" / machine / "0"
    return node.start("--address", "127.0.0.1", "--names", str(own / "names.json"), "--own", str(own))


def test_a_launcher_ends_so_that_its_node_moves_and_the_next_one_begins_there(node: Node) -> None:
    """One failure, for which one generation begins: its cause is that of the process, though another launcher says it."""
    node.launch.update(command=node.script(FAILS_ONCE), peer_port=free_port("127.0.0.1", 0, 30000, 32000))
    first = start(node, "s1")
    node.order(1, autonomy={**ALONE, "rules": RULES})
    assert first.wait(PATIENCE) == EXIT_MOVES
    assert (node.report()["state"], node.report()["exit_code"]) == ("failed", 3)
    second = start(node, "s2")
    promptly(lambda: second.poll() is not None or node.report()["state"] == "running")
    order = node.until("running", 2, 0.0)["order"]
    assert [(one["kind"], one["exit_code"]) for one in order["autonomy"]["failures"]] == [("exit", 3)]
