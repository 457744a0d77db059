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
from jobctl.jobspec.deploy.control import Failure, Ledger
from jobctl.jobspec.deploy.local import Local
from jobctl.jobspec.deploy.observed import Observed
from jobctl.jobspec.deploy.reconcile import Step, Wanted
from jobctl.jobspec.plan.types import Generation, Plan


@dataclass(frozen=True, slots=True)
class Fresh:
    """A new run beside the old one: another run id, and a checkpoint directory of its own."""

    run_id: str
    checkpoint_dir: str | None


def wanted(deployer: Local, plan: Plan, **how: object) -> Wanted:
    """Return what should run; `how` are further fields of Wanted."""
    return Wanted(plan, deployer.hashes(plan), code_hash(plan), **how)  # type: ignore[arg-type]


def carry_out(
    deployer: Local,
    want: Wanted,
    steps: Sequence[Step],
    observed: Observed,
    clock: Clock,
    note: Callable[[Step], None],
    *,
    failure: Failure | None = None,
    fresh: Fresh | None = None,
) -> Generation | None:
    """Apply `steps`, telling `note` of each before it is done; return the new generation, if one began.

    With `failure` the budget goes on and the failure is noted; without it, it begins anew. Raises DeployError.
    """
    about_nodes = [step for step in steps if step.node is not None]
    if any(step.kind in ("replace", "remove") for step in about_nodes):
        deployer.stop_processes(want.plan.stop_grace)
    for step in about_nodes:
        note(step)
        deployer.apply(step)
    deployer.settle()
    for step in steps:
        if step.kind == "generation":
            note(step)
            return _begin(deployer, want, step, observed, clock, failure, fresh)
    return None


def _begin(
    deployer: Local,
    want: Wanted,
    step: Step,
    observed: Observed,
    clock: Clock,
    failure: Failure | None,
    fresh: Fresh | None,
) -> Generation:
    generation = deployer.next_generation(want.plan, observed.control.generation, step.grace)
    if fresh is not None:
        generation = replace(generation, run_id=fresh.run_id, checkpoint_dir=fresh.checkpoint_dir)
    ledger = observed.control.ledger
    after = ledger.with_failure(failure) if failure else Ledger(clock.now())
    deployer.begin(generation, replace(after, code=want.code, result=None))
    return generation


def fresh_run(plan: Plan, last: Generation | None, exists: Callable[[str], bool]) -> Fresh:
    """Return a run that shares nothing with earlier ones: the first subdirectory `fresh-N` that is not there yet."""
    base = plan.checkpoint.dir if plan.checkpoint else None
    number = 1
    while base is not None and exists(f"{base}/fresh-{number}"):
        number += 1
    seed = f"{plan.run_id} {last.run_id if last else ''} {number}"
    run_id = f"{plan.job}-{sha256(seed.encode()).hexdigest()[:8]}"
    return Fresh(run_id, None if base is None else f"{base}/fresh-{number}")
