"""A story with everything in it, as the log and the steps that it is told from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.report.report import Story, tell

BEGIN = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
END = BEGIN + 4409.0

# Plain words for whatever others write into a log; a test puts something else in their place.
WORDS = ("resnet", "gpu01", "gpu02", "gpu03", "workerlog.1", "loss is nan", "something happened", "torch", "new-kind")


def rich(words: tuple[str, ...] = WORDS) -> Story:
    """Return the story of a job of two nodes: a failure, a host lost and a move, a failure again, and a good end."""
    job, one, two, three, log, last, odd, framework, kind = words
    lines: list[dict[str, Any]] = []

    def tell_of(at: float, event: str, message: str, /, **details: Any) -> None:
        lines.append({"time": BEGIN + at, "event": event, "message": message, **details})

    def node(at: float, number: int, host: str, state: str, generation: int, **details: Any) -> None:
        known = {"node": number, "host": host, "state": state, "generation": generation, "exit_code": None}
        tell_of(at, "node", f"node {number} on {host}: {state}", **{**known, **details})

    def generation(at: float, number: int, cause: str, *hosts: str) -> None:
        members = {str(at): host for at, host in enumerate(hosts)}
        told = f"generation {number} begins: {cause}"
        tell_of(at, "generation", told, generation=number, cause=cause, members=[0, 1], port=20000, hosts=members)
        for index, host in enumerate(hosts):
            node(at + 9 + index, index, host, "running", number)

    tell_of(0, "up", f"up: {framework} on 2 nodes, target compose", framework=framework, target="compose")

    findings = [
        {
            "host": one,
            "check": "compute",
            "verdict": "ok",
            "message": "5.93",
            "value": 5.93,
            "median": 5.9,
            "unit": "M/s",
        },
        {
            "host": two,
            "check": "compute",
            "verdict": "error",
            "message": odd,
            "value": 4.71,
            "median": 5.9,
            "unit": kind,
        },
        {"host": two, "check": "link", "verdict": "skipped", "message": last},
        {"check": "link", "verdict": "ok"},
        odd,
    ]
    findings[1]["code"] = odd
    tell_of(0.5, "fitness", odd, mode=kind, image="resnet:1", findings=findings)

    def step(at: float, one: Step) -> None:
        tell_of(at, "step", str(one), **one.fields(), by="up")

    step(1, Step("start", f"node 0 on {one}", "not running", 0, host=one))
    step(1, Step("start", f"node 1 on {two}", "not running", 1, host=two))
    step(9, Step("generation", "1", "the job is new", generation=1))
    node(22, 0, one, "running", 1)
    node(23, 1, two, "running", 1)
    node(1301, 0, one, "failed", 1, exit_code=137, progress=5170)
    tail = ["step 5169", last]
    tell_of(1301.2, "failure", f"node 0: {odd}", node=0, rank=1, progress=5170, log=log, tail=tail)
    generation(1301.6, 2, odd, one, two)
    tell_of(1400, "straggler", odd, node=1, rank=1, host=two, seconds=0.4, median=0.25, generation=2)
    tell_of(1401, "straggler-stays", odd, node=1, host=two, generation=2)
    tell_of(1402, "straggler", odd, node=0, host=one, generation=2)
    node(2603, 1, two, "lost", 0)
    node(2632, 1, two, "fenced", 0)
    tell_of(2635, "moved", f"node 1 moves to {three}", node=1, host=three, **{"from": two})
    generation(2655, 3, odd, one, three)
    stacks = [{"who": ["node1 rank1", last], "more": 2, "where": odd, "stack": [odd, last]}, {"who": 1}, odd]
    node(2901, 1, three, "failed", 3, exit_code=1, progress=10340)
    tell_of(2901.3, "failure", odd, node=1, rank=1, progress=10340, tail=[], stacks=stacks)
    generation(2901.7, 4, odd, one, three)
    tell_of(4000, kind, odd, figure=3)
    node(4100, 0, one, kind, 4)
    node(4105, 0, one, "exited", 4, exit_code=0, progress=14650)
    node(4106, 1, three, "exited", 4, exit_code=0, progress=14650)
    tell_of(4409, "succeeded", "job succeeded: all nodes ended with code 0")
    steps = [*_steps(40, 1300, 1, 2), *_steps(1325, 2600, 2, 5000), *_steps(2690, 2900, 3, 9500)]
    story = tell(job, lines, [*steps, *_steps(2930, 4100, 4, 10000)], None)
    assert story is not None
    past = {
        "all cores": {(two, ""): [5.8, 5.9, 4.71], (last, ""): [1.0]},
        "matrix products": {(two, odd): [99.5]},
        odd: {},
    }
    return replace(story, fitness=story.fitness.with_history(past))


def _steps(begin: int, end: int, generation: int, step: int) -> list[StepProgress]:
    return [StepProgress(BEGIN + at, generation, step + 4 * (at - begin)) for at in range(begin, end, 30)]
