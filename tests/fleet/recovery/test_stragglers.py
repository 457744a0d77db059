"""A node that makes the others wait, and a rule that has it leave its host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fleet.fleet import Fleet
from tests.fleet.jobs import COUNTER, SPEC, Jobs
from tests.tools.waiting import eventually

# In its first generation node 1 needs twice as long for each step as node 0.
PACES = COUNTER.replace(
    "file.write(str(step))\n    if",
    'slow = (node, os.environ["JOBCTL_GENERATION"]) == ("1", "1")\n'
    '        file.write("%d %s" % (step, 0.02 if slow else 0.01))\n    if',
)
RULE = "recovery: {{rules: [{{event: straggler, do: exclude_host}}]}}\n"


def test_a_slow_node_moves_to_a_spare_and_trains_on(hosts_of: Callable[[int], Fleet], tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, hosts_of(3), SPEC + RULE)
    (jobs.code / "counter.py").write_text(PACES)
    lines = (jobs.code / "hosts.txt").read_text().splitlines()
    (jobs.code / "hosts.txt").write_text("\n".join([*lines[:2], lines[2] + " spare"]) + "\n")
    assert jobs.up().returncode == 0
    state = jobs.trains(after=1)
    assert [one["host"] for one in state["nodes"]] == ["h1", "h3"]
    eventually(lambda: [one for one in jobs.containers() if one] and not jobs.containers()[1])
    (slow,) = jobs.happened("straggler")
    (moved,) = jobs.happened("moved")
    assert (slow["node"], moved["node"], moved["from"], moved["host"]) == (1, 1, "h2", "h3")
    assert jobs.happened("failure") == []
    assert "from step 0" not in jobs.ok("logs", "--node", "1", "--generation", "2")
    jobs.end()
    jobs.ok("wait")
    jobs.ok("down")
