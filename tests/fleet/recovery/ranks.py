"""A job whose nodes have a standby, though there is no framework on the hosts: a stand-in for JAX."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.fleet.jobs import Jobs
from tests.tools.waiting import eventually

COMMAND = re.compile(r"framework: torch\n((?:.*\n)*)command: \[python3, counter.py\]\nper: node\n")
SCRIPT = r"framework: jax\n\1script: counter.py\nenv: {PYTHONPATH: PACKAGES}\n"


def as_script(jobs: Jobs) -> None:
    """Have the nodes of a job that runs `counter.py` as a command run it as ranks of JAX."""
    path, counter = jobs.code / "job.yaml", jobs.code / "counter.py"
    packages = jobs.checkpoints / "packages"  # where all hosts see it, and which is not the job's own code
    packages.mkdir()
    (packages / "jax.py").write_text('__version__ = "0"\n')
    path.write_text(COMMAND.sub(SCRIPT, path.read_text()).replace("PACKAGES", str(packages)))
    counter.write_text(f"import jax\n{counter.read_text()}")


def how_begun(events: Callable[[], list[dict[str, Any]]], generation: int) -> tuple[str, bool, str | None]:
    """Return who has begun a generation, whether it was started from standby, and why not, once that is known."""

    def found() -> list[dict[str, Any]]:
        return [e for e in events() if (e["event"], e.get("generation")) == ("generation-begun", generation)]

    event = eventually(found)[-1]
    return event["by"], event["standby"], event["cold_because"]
