"""What `drill` does: breaks something of a running job on purpose, and tells how it recovers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from jobctl import console
from jobctl.bringup import duration
from jobctl.console import Failed
from jobctl.jobspec.deploy.clock import pause
from jobctl.naming import node_number
from jobctl.options import Format
from jobctl.outcome import SETTLED, show_tail

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.deployer import Deployer, Victim
    from jobctl.jobspec.deploy.observed import Observed

LOOK = 0.05  # seconds between two looks, at least
REPORTED = 0.3  # seconds until a step that was made is reported
TOLD = 10.0  # seconds in which the supervisor writes down what it has done


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds from the fault until the supervisor saw it, the next generation began, all nodes ran, and a step was made.

    None where that could not be seen: without events of the supervisor here, without a step counter.
    """

    detected: float | None = None
    stopped: float | None = None
    running: float | None = None
    training: float | None = None


@dataclass(frozen=True, slots=True)
class Drill:
    """What was broken, and what came of it. `before` and `after` are steps; `continued`: whether from a checkpoint."""

    victim: Victim
    node: int
    host: str
    generation: int
    before: int | None
    after: int | None
    seconds: Times
    continued: bool | None


def drill_job(deployer: Deployer, victim: Victim, node: str | None, yes: bool, timeout: str, output: Format) -> int:
    """Break something, wait for the recovery, report; return 1 if the job did not go on from where it was."""
    observed = _fit(deployer)
    taking_part = [member.node for member in observed.members]
    number = _last_trainer(observed) if node is None else node_number(deployer.plan, node, taking_part)
    host = next(member.host for member in observed.members if member.node == number)
    if victim == "host" and deployer.where() == (host,):
        raise Failed("the job has only one host, and goes on where it is", 2, "nobody can know that it is lost")
    _confirm(deployer, f"{_what(victim, number, host)[0]}", yes)
    drill = _watch(deployer, observed, victim, number, host, time.monotonic() + duration(timeout))
    if output is Format.json:
        console.out_json({"job": deployer.job.name, **asdict(drill)})
    else:
        _tell(drill)
    return 1 if drill.continued is False else 0


def _last_trainer(observed: Observed) -> int:
    return max(node.node for node in observed.members if node.role == "trainer")


def _fit(deployer: Deployer) -> Observed:
    """Look at the job. Ends with 2 if there is nothing to rehearse."""
    from jobctl.jobspec.deploy.observed import phase

    name, observed = deployer.job.name, deployer.observe()
    now, reason = phase(observed)
    if now != "running":
        raise Failed(f"job `{name}` is {now}: a drill needs one that runs", 2, reason)
    if not observed.supervised:
        raise Failed(f"job `{name}` has no supervisor, who would recover it", 2, f"`jobctl up {name}` starts one")
    return observed


def _what(victim: Victim, node: int, host: str) -> tuple[str, str]:
    """Say what a drill does, and what it did."""
    if victim == "host":
        return f"plays that {host} with node {node} is lost", f"played that {host} with node {node} is lost"
    what = f"{'a process' if victim == 'process' else 'the container'} of node {node} on {host}"
    return f"kills {what}", f"killed {what}"


def _confirm(deployer: Deployer, what: str, yes: bool) -> None:
    plan = deployer.plan
    cost = f"one of the {plan.recovery.max_restarts} restarts of `recovery.max_restarts`" if plan else "a restart"
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failed("a drill breaks a job on purpose, and asks before", 2, "`--yes` if nobody is there to answer")
    console.say(f"this {what} of job `{deployer.job.name}`, and costs the work since its last checkpoint and {cost}")
    if not typer.confirm("go on?", err=True):
        raise Failed("nothing was done", 2)


def _watch(deployer: Deployer, observed: Observed, victim: Victim, node: int, host: str, deadline: float) -> Drill:
    from jobctl.jobspec.deploy import events

    generation = observed.control.generation
    number = generation.number if generation else 0
    before, rate = _step(observed), _rate(observed)
    _, offset = events.read(deployer.job.events)
    struck = time.time()
    deployer.strike(node, victim)
    running, at, gap, after = _recovery(deployer, number, before is not None, deadline)
    told = _told(deployer, offset)
    times = Times(
        _first(told, "failure", struck),
        _first(told, "generation", struck),
        round(running - struck, 2),
        round(at - struck, 2) if after is not None else None,
    )
    return Drill(victim, node, host, number, before, after, times, _continued(before, after, rate * (gap + REPORTED)))


def _told(deployer: Deployer, offset: int) -> list[dict[str, Any]]:
    """Return what the supervisor has told since; one that has told of the failure tells of the generation, too."""
    from jobctl.jobspec.deploy import events

    deadline = time.monotonic() + TOLD
    while True:
        told, _ = events.read(deployer.job.events, offset)
        kinds = {event["event"] for event in told}
        if "failure" not in kinds or "generation" in kinds or time.monotonic() >= deadline:
            return told
        pause(LOOK)


def _recovery(deployer: Deployer, number: int, counts: bool, deadline: float) -> tuple[float, float, float, int | None]:
    """Wait until all nodes run a later generation than `number`, and have made a step if the job `counts` them.

    Returns when they ran, when that step was seen, for how long nobody had looked then, and the step.
    """
    from jobctl.jobspec.deploy.observed import phase

    name, running, last = deployer.job.name, None, time.time()
    for observed in _looks(deployer, deadline):
        current = observed.control.generation
        if current is None or current.number <= number:
            if phase(observed)[0] == "succeeded":
                raise Failed(f"job `{name}` ended well before the drill could harm it", 2)
            continue
        if any(m.generation != current.number or m.state not in ("running", "exited") for m in observed.members):
            continue  # what they report is of before
        running = running or time.time()
        if _step(observed) is not None or not counts:
            return running, time.time(), time.time() - last, _step(observed)
        last = time.time()
    raise Failed(f"job `{name}` has not recovered in time", 1, f"`jobctl status {name}`, `jobctl events {name}`")


def _looks(deployer: Deployer, deadline: float) -> Iterator[Observed]:
    """Look again and again until the deadline. Ends with 1 if the job ends badly."""
    from jobctl.jobspec.deploy.observed import phase

    name = deployer.job.name
    while time.monotonic() < deadline:
        observed = deployer.observe()
        now, reason = phase(observed)
        if now in SETTLED and now != "succeeded":
            show_tail(observed)
            raise Failed(f"job `{name}` {now}: {reason}", 1, "it did not survive the drill")
        yield observed
        pause(max(LOOK, deployer.interval / 4))


def _step(observed: Observed) -> int | None:
    return max((node.progress for node in observed.members if node.progress is not None), default=None)


def _rate(observed: Observed) -> float:
    """Return how many steps a second the job makes, rather too many: what it has made since it began, four times."""
    began = min((node.started_at for node in observed.members if node.started_at), default=None)
    step = _step(observed)
    return 0.0 if began is None or step is None else 4 * step / max(1.0, time.time() - began)


def _first(told: list[dict[str, Any]], kind: str, since: float) -> float | None:
    found = (event["time"] for event in told if event["event"] == kind and event["time"] >= since)
    at = next(found, None)
    return None if at is None else round(at - since, 2)


def _continued(before: int | None, after: int | None, unseen: float) -> bool | None:
    """Say whether training went on from a checkpoint; None where that cannot be told from the steps.

    `unseen` is how many steps may have been made since the last look that saw none, at the rate of before.
    """
    if before is None or after is None:
        return None
    from_zero = 1 + unseen  # as far as it may have come, had it begun from zero
    if after > from_zero:
        return True
    return False if before > from_zero else None


def _tell(drill: Drill) -> None:
    at = f" at step {drill.before}" if drill.before is not None else ""
    console.out(f"{_what(drill.victim, drill.node, drill.host)[1]}{at}, in generation {drill.generation}")
    rows = [
        ("detected", drill.seconds.detected, "the supervisor saw it"),
        ("stopped", drill.seconds.stopped, "what was left had ended, and the next generation began"),
        ("running", drill.seconds.running, "all nodes run again"),
        ("training", drill.seconds.training, f"first step seen: {drill.after}"),
    ]
    lines = [(name, f"{seconds:.2f} s", what) for name, seconds, what in rows if seconds is not None]
    console.out(console.table(("", "AFTER", ""), lines))
    if drill.continued is False:
        console.error(
            f"training began from the beginning: step {drill.before} was reached before, {drill.after} after",
            "does the script read its checkpoint from $JOBCTL_CHECKPOINT_DIR, and is that shared by all hosts?",
        )
    elif drill.continued:
        console.say("the job went on from its checkpoint")
    else:
        console.say("the job runs again; from the steps alone it cannot be told where it went on")
