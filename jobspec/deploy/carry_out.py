"""Applying steps, in the one order in which that is safe: files, launchers, then the generation.

`up`, `restart` and the supervisor come through here. Killed at any point, a later `up` finds what is missing by
observing, and ends in the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from jobctl.jobspec.deploy.clock import Clock
from jobctl.jobspec.deploy.code import code_hash
from jobctl.jobspec.deploy.control import Ledger
from jobctl.jobspec.deploy.deployer import Deployer, Failures
from jobctl.jobspec.deploy.observed import Observed
from jobctl.jobspec.deploy.reconcile import Step, Wanted
from jobctl.jobspec.frameworks.rules import DEFAULT_RULES
from jobctl.jobspec.plan.generation import FIRST_PORT, PORTS
from jobctl.jobspec.plan.types import Alone, Failure, Generation, Node, Plan


@dataclass(frozen=True, slots=True)
class Fresh:
    """A new run beside the old one: another run id, and a checkpoint directory of its own."""

    run_id: str
    checkpoint_dir: str | None


@dataclass(frozen=True, slots=True)
class Done:
    """What came of steps: the generation that began, if one did, and the hosts that could not do their part.

    `at` is when it was handed out, by the clock of `carry_out`.
    """

    generation: Generation | None
    failed: Failures
    at: float = 0.0


def wanted(deployer: Deployer, plan: Plan, **how: object) -> Wanted:
    """Return what should run; `how` are further fields of Wanted."""
    code = plan.code.version if plan.code and plan.code.version else code_hash(plan)
    return Wanted(plan, deployer.hashes(plan), code, services=deployer.service_hashes(plan), **how)  # type: ignore[arg-type]


def carry_out(
    deployer: Deployer,
    want: Wanted,
    steps: Sequence[Step],
    observed: Observed,
    clock: Clock,
    note: Callable[[Step], None],
    *,
    failure: Failure | None = None,
    fresh: Fresh | None = None,
    failed: Failures | None = None,
    patience: float = 0.0,
) -> Done:
    """Apply `steps`, telling `note` of each before it is done, on all hosts but those that have `failed` before.

    With `failure` the budget goes on and the failure is noted; without it, it begins anew. A generation begins if
    enough nodes stand ready; for `patience` seconds it is waited for launchers to begin it. Raises DeployError.
    """
    failures = dict(failed or {})
    todo = [step for step in steps if step.host and step.host not in failures]
    if any(step.kind == "generation" for step in steps) and len(_ready(want, observed, failures)) < want.plan.min_nodes:
        todo = [step for step in todo if step.kind == "start"]  # what runs is not ended for what cannot begin
    if any(step.kind in ("replace", "remove") and not step.stale for step in todo):
        deployer.stop_processes(want.plan.stop_grace)
    for step in todo:
        note(step)
    failures |= deployer.apply(todo)
    for step in steps:
        if step.kind == "generation":
            ready = _ready(want, observed, failures)
            if len(ready) < want.plan.min_nodes or not _is_worth_it(want, observed, ready):
                break
            note(step)
            ledger = replace(
                _ledger(want, observed, clock, failure), image=deployer.image or observed.control.ledger.image
            )
            generation = deployer.next_generation(want.plan, observed.control.generation, step.grace, ready)
            if observed.control.generation is None:
                generation = replace(generation, began=clock.now())
            generation = replace(generation, alone=_alone(want.plan, ledger, clock.now()))
            if fresh is not None:
                generation = replace(generation, run_id=fresh.run_id, checkpoint_dir=fresh.checkpoint_dir)
            at = clock.now()
            return Done(generation, failures | dict(deployer.begin(generation, ledger, patience)), at)
    return Done(None, failures)


def _alone(plan: Plan, ledger: Ledger, now: float) -> Alone | None:
    """Return what launchers may do by themselves: nothing where they have no etcd to agree in."""
    if not any(node.launch.etcd for node in plan.nodes):
        return None
    left = plan.recovery.max_restarts - ledger.counted(plan.recovery.window, now)
    rules = (*plan.recovery.rules, *DEFAULT_RULES)
    return Alone(max(0, left), rules, (FIRST_PORT, FIRST_PORT + PORTS - 1))


def _is_worth_it(want: Wanted, observed: Observed, ready: Sequence[Node]) -> bool:
    """Say whether a generation that is to be larger is: one that began with as many nodes would only cost time."""
    generation = observed.control.generation
    return not want.keep_budget or generation is None or len(ready) > len(generation.members)


def _ready(want: Wanted, observed: Observed, failed: Failures) -> list[Node]:
    """Return the nodes that can take part: those of hosts that answer and did their part."""
    return [node for node in want.usable(observed) if node.host.name not in failed]


def _ledger(want: Wanted, observed: Observed, clock: Clock, failure: Failure | None) -> Ledger:
    before = observed.control.ledger
    if failure is None and not want.keep_budget:
        return Ledger(clock.now(), want.code)
    after = before.with_failure(failure) if failure else before
    return replace(after, code=want.code, result=None, excluded=tuple(sorted({*before.excluded, *want.excluded})))


def fresh_run(plan: Plan, last: Generation | None, exists: Callable[[str], bool]) -> Fresh:
    """Return a run that shares nothing with earlier ones: the first subdirectory `fresh-N` that is not there yet."""
    base = plan.checkpoint.dir if plan.checkpoint else None
    number = 1
    while base is not None and exists(f"{base}/fresh-{number}"):
        number += 1
    seed = f"{plan.run_id} {last.run_id if last else ''} {number}"
    run_id = f"{plan.job}-{sha256(seed.encode()).hexdigest()[:8]}"
    return Fresh(run_id, None if base is None else f"{base}/fresh-{number}")
