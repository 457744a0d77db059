"""Jobs of the real JAX on this machine: the example, one of whose ranks is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.tools.frameworks import python_of
from tests.tools.pace import keep_pace, limit
from tests.tools.processes import hurry
from tests.tools.standins import PATH

from .test_faults import RECOVERED

EXAMPLE = Path(__file__).parents[2] / "examples" / "jax-digits"
SHORT = "--set=args=[--epochs=3, --checkpoint-every=10, --min-accuracy=0.9]"  # 66 steps


@pytest.mark.long
def test_it_ends_as_an_undisturbed_run_though_a_rank_is_killed(jobs: Any, eventually: Any, tmp_path: Path) -> None:
    """Both ranks go on in processes that have imported JAX already.

    Rank 0 fails a moment later in a sum that rank 1 takes no part in; the job blames rank 1.
    """
    shutil.copytree(EXAMPLE, tmp_path / "jax-digits")
    (jobs.directory / "job.yaml").unlink()
    jobs.directory = tmp_path / "jax-digits"
    checkpoints = tmp_path / "checkpoints"
    where = f"{python_of('jax').parent}{os.pathsep}{os.environ['PATH']}"
    jobs.set(PATH=where, CHECKPOINT_DIR=str(checkpoints), PYTHONPATH=PATH, JAX_PROCESS_ID="7")
    keep_pace(EXAMPLE, jobs.directory)
    limit(checkpoints, 25)
    jobs.ok("up", SHORT)

    def ready() -> dict[str, Any] | None:
        hurry(jobs.processes())
        state: dict[str, Any] = jobs.status()
        return state if "warming" not in {node["standby"]["state"] for node in state["nodes"]} else None

    def there() -> dict[str, Any] | None:
        state: dict[str, Any] = jobs.status()
        return state if all((node["progress"] or 0) >= 25 for node in state["nodes"]) else None

    eventually(there, 240)
    state = eventually(ready, 240)
    os.kill(state["nodes"][1]["processes"][0]["pid"], signal.SIGKILL)
    limit(checkpoints, None)
    assert jobs.run("wait", "--timeout", "200s", timeout=240).returncode == 0, jobs.ok("events")
    assert jobs.status()["generation"] == 2
    begun = [event for event in jobs.events() if event["event"] == "generation-begun"]
    assert [(event["standby"], event["cold_because"]) for event in begun][1:] == [(True, None)]
    story = "\n".join(event["message"] for event in jobs.events())
    assert re.search(f"node 1: rank 1 was killed by SIGKILL{RECOVERED}", story)
    out = jobs.ok("logs", "--rank", "0")
    assert re.findall(r"(?:started|resumed) step=(\d+) of=66 processes=2", out) == ["0", "20"]

    undisturbed = jobs.run("up", SHORT, "--set=recovery.standby='off'", "--fresh", "--follow", timeout=240)
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert finals(out) == finals(undisturbed.stdout)


def finals(out: str) -> list[str]:
    """What rank 0 says at its end."""
    found = re.findall(r"final step=66 loss=\S+ accuracy=\S+", out)
    assert len(found) == 1, out
    return found
