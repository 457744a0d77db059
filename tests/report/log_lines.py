"""Lines of an event log, and the story that is told from them."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.report.report import Story, tell

Line = dict[str, Any]


def line(at: float, kind: str, message: str = "", /, **details: Any) -> Line:
    return {"time": at, "event": kind, "message": message, **details}


def step(at: float, step: Step) -> Line:
    return line(at, "step", str(step), **step.fields(), by="up")


def start(at: float, node: int, host: str = "localhost") -> Line:
    return step(at, Step("start", f"node {node} on {host}", "not running", node, host=host))


def asked(at: float, number: int, cause: str = "the job is new") -> Line:
    return step(at, Step("generation", str(number), cause, generation=number))


def again(at: float, number: int, cause: str, members: tuple[int, ...] = (0, 1), **details: Any) -> Line:
    message = f"generation {number} begins: {cause}"
    known = {"generation": number, "cause": cause, "members": list(members), "port": 20000}
    return line(at, "generation", message, **known, **details)


def node(at: float, number: int, state: str, generation: int, **details: Any) -> Line:
    message = details.pop("message", f"node {number} on localhost {state}")
    known = {"exit_code": None, "progress": None}
    return line(at, "node", message, node=number, state=state, generation=generation, **{**known, **details})


def failure(at: float, message: str = "node 1: rank 1 exited with code 7", **details: Any) -> Line:
    return line(at, "failure", message, **details)


# Two nodes; one fails at step 50, of which 40 were kept; then all goes well.
LOG = (
    line(100.0, "up", "up: torch on 2 nodes, target local", framework="torch", target="local"),
    start(100.0, 0),
    start(100.0, 1),
    asked(101.0, 1),
    line(101.5, "supervisor-started", "supervisor started"),
    node(102.0, 0, "running", 1),
    node(103.0, 1, "running", 1),
    node(160.0, 1, "failed", 1, exit_code=7, progress=50, message="node 1: rank 1 exited with code 7 (generation 1)"),
    failure(160.5, node=1, rank=1, exit_code=7, kind="exit", progress=50, log="workerlog.0", tail=["one", "two"]),
    again(161.0, 2, "node 1: rank 1 exited with code 7"),
    node(163.0, 0, "running", 2),
    node(164.0, 1, "running", 2),
    node(240.0, 0, "exited", 2, exit_code=0, progress=100),
    node(241.0, 1, "exited", 2, exit_code=0, progress=100),
    line(242.0, "succeeded", "job succeeded: all nodes ended with code 0"),
    line(242.1, "supervisor-ended", "supervisor ended: the job succeeded"),
    line(300.0, "down", "job taken down", failed=[]),
)
STEPS = (
    *(StepProgress(110.0 + step, 1, step) for step in range(0, 50, 10)),
    *(StepProgress(130.0 + step, 2, step) for step in range(40, 101, 10)),
)


def told(lines: Any, records: Any = (), now: float | None = None) -> Story:
    story = tell("job", lines, records, now)
    assert story is not None
    return story
