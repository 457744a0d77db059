"""What `status` says of a job, by what was seen of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.model.observed import FULL, GOES_BACK, Observed, phase
from jobctl.jobspec.plan.generation import AutonomyTerms
from tests.deploy.apply.test_reconcile import CONTROL, MISSED, RUNNING, with_node
from tests.tools.failures import failed


def test_a_running_job_says_what_its_nodes_wait_for() -> None:
    assert phase(RUNNING) == ("running", None)
    waiting = with_node(1, reason="waits for server 10.0.0.1:20001")
    assert phase(waiting) == ("running", "node 1: waits for server 10.0.0.1:20001")


def test_status_names_the_host_that_has_not_received_the_generation() -> None:
    words = "localhost has not received generation 2; it is sent again until it arrives"
    assert phase(MISSED) == ("restarting", words)
    full = replace(MISSED, obstacles={"localhost": FULL})
    assert phase(full) == ("restarting", f"{words}; localhost: {FULL}")
    alone = replace(MISSED, supervised=False)
    assert phase(alone) == ("degraded", "localhost has not received generation 2; `jobctl up` sends it again")


def test_status_tells_why_a_host_without_the_generation_cannot_start_its_node() -> None:
    why = "cannot be started on localhost: the code that runs is not there"
    nodes = tuple(replace(node, state="pending", launcher=None, reason=why) for node in MISSED.nodes)
    assert phase(replace(MISSED, nodes=nodes))[1] == f"waits for node 0, 1: it {why}"


def test_a_change_that_waits_is_told_of_a_job_that_runs() -> None:
    words = "a change waits until all hosts that it needs are ready"
    assert phase(replace(RUNNING, changing=True)) == ("running", words)


def test_a_job_that_a_command_stopped_to_change_it_is_not_called_stopped() -> None:
    half = replace(RUNNING, control=replace(CONTROL, generation=replace(CONTROL.generation, command="stop")))  # type: ignore[type-var]
    assert phase(half) == ("restarting", "stopped for a change; the change goes on")


def test_a_job_whose_command_was_cut_off_says_what_becomes_of_it() -> None:
    def told(command: str, pause: int | None, reason: str | None = None) -> tuple[str, str | None]:
        generation = replace(CONTROL.generation, command=command, pause=pause)  # type: ignore[type-var]
        nodes = [replace(node, state="exited", reason=reason) for node in RUNNING.nodes]
        control = replace(CONTROL, generation=generation)
        return phase(replace(RUNNING, control=control, nodes=tuple(nodes), supervised=False))

    assert told("stop", 1) == ("restarting", f"stopped for a change; {GOES_BACK}")
    words = "stopped for a change; no supervisor runs: `jobctl up` goes on"
    assert told("stop", None) == ("stopped", words)
    stuck = "cannot go on as before: the launcher of node 1 is not heard, or was started again since"
    assert told("stop", 1, stuck) == ("stopped", words.replace("; ", f"; {stuck}; "))
    assert told("finish", None) == (
        "stopped",
        "taken down in part: `jobctl down` takes the rest down, `jobctl up` starts it again",
    )


def unwatched(**others: Any) -> Observed:
    """Return a job that nobody watches: its node 0 has failed, and is as `others` say; and node 1 runs."""
    assert CONTROL.generation is not None
    alone = replace(CONTROL.generation, autonomy=AutonomyTerms(2, (), (20000, 20010)))
    broken = with_node(0, **{"state": "failed", "failure": failed(rank=0), "reason": EXITED, **others})
    return replace(broken, control=replace(CONTROL, generation=alone), supervised=False)


EXITED = "rank 0 exited with code 1"
LOST = {"state": "lost", "reachable": False, "launcher": None, "reason": "h2 cannot be reached"}


def test_what_launchers_wait_for_after_a_failure_is_told() -> None:
    def told(reason: str, **others: Any) -> str | None:
        return phase(unwatched(reason=reason, **others))[1]

    assert told(EXITED) == f"node 0: {EXITED}; no supervisor runs: its launchers go on by themselves, or end it"
    assert told(f"{EXITED}; leaves it to node 1, which failed first") == told(EXITED)
    for words in ("waits for node 1, which is not heard", "a rule has it leave its host; waits for the supervisor"):
        assert told(f"{EXITED}; {words}") == f"node 0: {EXITED}; no supervisor runs: node 0: {words}"
    again = "its launcher was started again"
    begun = {"failure": failed(kind="launcher", reason=f"{again}; has no lease")}
    assert told(f"{again}; has no lease", **begun) == f"node 0: {again}; no supervisor runs: node 0: has no lease"


def test_a_lost_host_is_told_beside_a_failure() -> None:
    seen = unwatched()
    nodes = (seen.nodes[0], replace(seen.nodes[1], **LOST))
    words = f"node 0: {EXITED}; node 1: h2 cannot be reached"
    goes_on = "its launchers go on once they hear node 1, or a hot spare has taken its place"
    assert phase(replace(seen, nodes=nodes)) == ("degraded", f"{words}; no supervisor runs: {goes_on}")
    assert phase(replace(seen, nodes=nodes, supervised=True)) == ("restarting", words)


def test_a_full_disk_is_told_of_a_job_that_runs() -> None:
    assert phase(replace(RUNNING, obstacles={"localhost": FULL})) == ("running", f"localhost: {FULL}")
