"""A stand-in for a framework, which says when it is imported, and what its jobs do in the tests of standby."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.tools.processes import hurry
from tests.tools.waiting import eventually, promptly

# Says so each time that it is imported. It does not ask for the variable, as what an import has read must stay the same.
# While there is a file `hold` beside it, no import comes to its end. It imports another package.
FRAMEWORK = """\
import os, sys, time
while os.path.exists(os.path.join(os.path.dirname(__file__), "hold")):
    time.sleep(0.05)
with open("/proc/self/environ") as file:
    generation = file.read().partition("JOBCTL_GENERATION=")[2].partition("\\0")[0]
sys.stderr.write("framework imported in generation %s\\n" % generation)
import needed
"""
SETS = 'os.environ.update({"SET_FIRST": "1", "AND_SECOND": "2", "MADE_THIRD": "3", "AT_LAST": "4"})\n'

# Starts processes as torchrun does.
RUN = """\
import os, subprocess, sys
import framework

def main(argv):
    count, shim = int(argv[0]), argv[1:]
    started = []
    for local in range(count):
        own = {"LOCAL_RANK": str(local), "RANK": str(local), "WORLD_SIZE": str(count), "MASTER_PORT": argv[0]}
        started.append(subprocess.Popen(shim, env={**os.environ, **own}, start_new_session=True))
    return max(child.wait() for child in started)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""

# Starts processes as Paddle's launcher does: by an interpreter, script and log that it chooses, in sessions of their own.
LAUNCH = """\
import os, subprocess, sys
import framework

os.environ["MADE"] = "by the import"

def launch():
    count, script = int(sys.argv[1]), sys.argv[2:]
    started = []
    for local in range(count):
        own = {"PADDLE_TRAINER_ID": str(local), "PADDLE_RANK_IN_NODE": str(local), "PADDLE_MASTER": str(os.getpid())}
        log = open("launched.%d" % local, "a")
        argv = [sys.executable, "-u", *script]
        started.append(
            subprocess.Popen(argv, env={**os.environ, **own}, stdout=log, stderr=log, preexec_fn=os.setsid)
        )
    return max(child.wait() for child in started)

if __name__ == "__main__":
    sys.exit(launch())
"""

# Is like the first, and connects to where that of the first node listens.
MEET = """\
import socket
from framework import run

def main(argv):
    socket.create_connection(("127.0.0.1", int(argv[0]))).sendall(b"here\\n")
    return run.main(argv[1:])

if __name__ == "__main__":
    import sys
    sys.exit(run.main(sys.argv[2:]))
"""

TRAIN = """\
import os, time
import framework
print("training", framework.__name__, os.environ["JOBCTL_GENERATION"], flush=True)
with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
    file.write("1")
time.sleep(600)
"""

OWN = ["PADDLE_MASTER", "PADDLE_TRAINER_ID"]  # variables of the stand-in that each generation changes
ALL = pytest.mark.parametrize("standby", ["torchrun", "script", "itself"], indirect=True)
BOTH = pytest.mark.parametrize("standby", ["torchrun", "itself"], indirect=True)
ITSELF = pytest.mark.parametrize("standby", ["itself"], indirect=True)


def begin(node: Any) -> None:
    """Have generation 1 train until there is a standby."""
    node.start()
    node.order(1)
    node.until("running", 1)
    eventually(lambda: hurry(node.living()) or node.report()["standby"]["state"] in ("ready", "off"))
    assert node.report()["standby"] == {"state": "ready", "reason": None}


def begin_again(node: Any, **order: Any) -> dict[str, Any]:
    """Kill a rank, and return the report of generation 2 once its ranks run, or have ended already."""
    os.kill(node.report()["processes"][-1]["pid"], signal.SIGKILL)
    node.until("failed", 1)
    node.order(2, **order)
    return begun_again(node)


def begun_again(node: Any) -> dict[str, Any]:
    """Return the report of generation 2 likewise."""

    def begun() -> dict[str, Any] | None:
        report: dict[str, Any] = node.report()
        states = {process["state"] for process in report["processes"]}
        there = report["generation"] == 2 and states and states <= {"running", "exited", "failed"}
        return report if there and report["start"] else None

    found: dict[str, Any] = promptly(begun)
    return found


def waiting(node: Any) -> dict[str, int]:
    """Return the processes that wait: the framework's launcher, guards and ranks, by what they are."""
    found: dict[str, int] = {}
    for pid in node.living():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes()
            line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"JOBCTL_STANDBY=" in variables:
                kind = "launcher" if b"parked-launcher" in line else "guard" if b"parked" in line else "rank"
                found[kind] = pid
                if kind == "rank" and not node.launch["start"]:  # its guard was forked: its command is the launcher's
                    found["guard"] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    return found
