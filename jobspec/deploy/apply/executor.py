"""Applying steps, in the one order in which that is safe: files, launchers, then the generation.

`up`, `restart` and the supervisor come through here. Killed at any point, a later `up` finds what is missing by
observing, and ends in the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from hashlib import sha256

from jobctl.jobspec.deploy.apply.clock import Clock
from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures
from jobctl.jobspec.deploy.apply.generations import longest_lease, moves_of
from jobctl.jobspec.deploy.apply.reconcile import Step, Wanted
from jobctl.jobspec.deploy.model.control import Image, Ledger
from jobctl.jobspec.deploy.model.errors import ENGINE_AWAY_CODES
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.code import code_hash
from jobctl.jobspec.frameworks.failure_patterns import DEFAULT_RULES
from jobctl.jobspec.plan.generation import FIRST_PORT, PORTS, AutonomyTerms, Base, Generation, HotSpare
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Fresh:
    """A new run beside the old one: another run id, and a checkpoint directory of its own."""

    run_id: str
    checkpoint_dir: str | None


@dataclass(frozen=True, slots=True)
class Transition:
    """The way from the job as `observed` to the one that is wanted, by `steps`."""

    want: Wanted
    observed: Observed
    steps: Sequence[Step]

    @property
    def begins(self) -> Step | None:
        """The step that begins a generation, if one is to."""
        return next((step for step in self.steps if step.kind == "generation"), None)

    def ready(self, failed: Failures) -> list[Node]:
        """Return the nodes that can take part: those of hosts that answer and did their part."""
        return [node for node in self.want.usable(self.observed) if node.host.name not in failed]

    def is_held(self, failed: Failures) -> bool:
        """Say whether what runs goes on as it is: without hosts that have `failed`, too few are left for what is wanted."""
        too_few = len(self.ready(failed)) < self.want.plan.min_nodes
        return self.begins is not None and runs(self.observed) and too_few


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How steps are applied.

    With `failure` the budget goes on and the failure is noted; without it, a new one begins. Hosts that have `failed`
    before are left out. Launchers get `patience` seconds to begin a generation, an engine that does not answer gets
    `engines` seconds to come back. `adopt` is called when it is certain that the plan will run, before anything changes.
    `at_length` surrounds what may take long on hosts.
    """

    failure: Failure | None = None
    fresh: Fresh | None = None
    failed: Failures = field(default_factory=dict)
    patience: float = 0.0
    engines: float = 0.0
    adopt: Callable[[], None] = _nothing
    at_length: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True, slots=True)
class Done:
    """What came of steps: the generation that began, if one did, and the hosts that could not do their part.

    `at` is when it was handed out, by the clock of `execute`. `held`: a change was not made, since too few of the
    hosts that it needs were ready; what ran before runs on.
    """

    generation: Generation | None
    failed: Failures
    at: float = 0.0
    held: bool = False


def wanted_state(deployer: Deployer, plan: Plan, **how: object) -> Wanted:
    """Return what should run; `how` are further fields of Wanted."""
    code = plan.code.version if plan.code and plan.code.version else code_hash(plan)
    also = {"services": deployer.service_ids(plan), "spare_artefacts": deployer.spare_ids(plan)}
    how = {"origin": deployer.job.origin(plan), **how}
    return Wanted(plan, deployer.ids(plan), code, **also, **how)  # type: ignore[arg-type]


def execute(
    deployer: Deployer,
    transition: Transition,
    clock: Clock,
    note: Callable[[Step], None],
    how: Execution | None = None,
) -> Done:
    """Apply the steps, telling `note` of each before it is done. A generation begins if enough nodes stand ready.

    A change begins only where all that it needs is ready; from then on it is completed, by the supervisor if we are
    killed. Raises DeployError.
    """
    how, plan, steps = how or Execution(), transition.want.plan, transition.steps
    failures = dict(how.failed)
    ending = {step.host for step in steps if ends(step)}
    failures |= deployer.engines(ending - set(failures), how.engines) if ending else {}
    todo = [step for step in steps if step.host and step.host not in failures]
    if any(step.kind == "wait" for step in steps):
        _note_all(todo, note)
        return Done(None, failures | dict(deployer.apply(todo)), held=True)
    if transition.is_held(failures):
        return Done(None, failures, held=True)
    begins = transition.begins
    if begins is not None and len(transition.ready(failures)) < plan.min_nodes:
        todo = [step for step in todo if step.kind == "start"]
    how.adopt()
    _note_all(todo, note)
    with how.at_length():
        if any(map(ends, todo)):
            deployer.stop_processes(plan.stop_grace, for_change=True)
        failures |= _apply(deployer, todo, how.engines)
    ready = transition.ready(failures)
    if begins is None or len(ready) < plan.min_nodes or not _is_worth_it(transition, ready):
        return Done(None, failures)
    last = _last(deployer, transition, how.failure)
    number = last.number + 1 if last is not None else 1
    note(replace(begins, target=str(number), generation=number))
    ledger = _ledger(transition, deployer.image, clock, how.failure)
    generation = _next(deployer, transition, last, ready, clock.now(), ledger)
    if how.fresh is not None:
        generation = replace(generation, run_id=how.fresh.run_id, checkpoint_dir=how.fresh.checkpoint_dir)
    generation = replace(generation, moves=moves_of(generation, transition.observed, failures))
    generation = replace(generation, longest_lease=longest_lease(generation, transition.observed))
    at = clock.now()
    return Done(generation, failures | dict(deployer.begin(generation, ledger, how.patience)), at)


def _note_all(steps: Sequence[Step], note: Callable[[Step], None]) -> None:
    """Tell of each step."""
    for step in steps:
        note(step)


def ends(step: Step) -> bool:
    """Say whether a step ends a launcher that has a part in what runs."""
    return step.kind in ("replace", "remove") and not step.stale


def runs(observed: Observed) -> bool:
    """Say whether there is something that goes on if nothing is done."""
    return observed.control.generation is not None and not observed.control.ordered_to_end


def _apply(deployer: Deployer, steps: Sequence[Step], engines: float) -> Failures:
    """Apply steps; those of a host whose engine went away meanwhile are applied once more when it is back."""
    failures = dict(deployer.apply(steps))
    away = {host for host, error in failures.items() if error.code in ENGINE_AWAY_CODES}
    if not away or engines <= 0.0:
        return failures
    back = away - set(deployer.engines(away, engines))
    again = deployer.apply([step for step in steps if step.host in back])
    return {host: error for host, error in failures.items() if host not in back} | dict(again)


def _last(deployer: Deployer, transition: Transition, failure: Failure | None) -> Generation | None:
    """Return the generation before the next one, with the highest number that anything has reached by now.

    Launchers may have begun some since the job was observed: to prepare hosts takes minutes. With etcd, and in what
    `status` reads, a generation with a lower number is an older one. A supervisor that handles a `failure` has just
    looked, and launchers that it answers begin nothing. Raises DeployError.
    """
    last = transition.observed.control.generation
    if last is None:
        return None
    now = transition.observed if failure is not None else deployer.observe()
    newest = now.control.generation or last
    return replace(last, number=max(last.number, newest.number, *(node.generation for node in now.members)))


def _next(
    deployer: Deployer,
    transition: Transition,
    last: Generation | None,
    ready: Sequence[Node],
    now: float,
    ledger: Ledger,
) -> Generation:
    """Return the generation after `last` that begins with the nodes that are `ready`."""
    want, step = transition.want, transition.begins
    generation = deployer.next_generation(want.plan, last, step.grace if step else 0.0, ready)
    if last is None:
        generation = replace(generation, began=now)
    hot = want.spare_artefacts
    spares = deployer.idle_spares(hot, {node.host.name for node in ready}) if hot else ()
    known = deployer.inventory.hosts if deployer.inventory is not None else ()
    free = {host.name for host in known} - {node.host.name for node in want.plan.nodes} - set(ledger.excluded_hosts)
    autonomy = _autonomy(want.plan, ledger, now, generation, spares, moves=bool(free))
    cause = step.cause if step else None
    return replace(generation, autonomy=autonomy, why=None, cause=cause)


def _autonomy(
    plan: Plan, ledger: Ledger, now: float, generation: Generation, spares: Sequence[HotSpare], *, moves: bool
) -> AutonomyTerms | None:
    """Return what launchers may do by themselves in `generation`.

    Without etcd nothing, where a node that comes back has to stay away for a while first: only a supervisor knows for how
    long it was gone. `spares` are those that wait for a node. A rule has a node leave its host only if a supervisor could
    move it (`moves`): it would have the node begin again where it is, too.
    """
    etcd = any(node.launch.etcd for node in plan.nodes)
    if not etcd and any(node.launch.rejoin_after for node in plan.nodes):
        return None
    window = plan.recovery.window
    counted = ledger.counting(window, now)
    spent = () if window is None else tuple(failure.counts_from for failure in counted)
    rules = tuple(
        replace(rule, do="restart") if rule.do == "exclude_host" and not moves else rule
        for rule in (*plan.recovery.rules, *DEFAULT_RULES)
    )
    base = None if etcd else Base(generation.number, generation.rendezvous.id)
    # In a job that could begin with fewer nodes, a command that does not know of a move might leave out those that do.
    fixed = plan.min_nodes == len(plan.nodes)
    hot = tuple(spare for spare in spares if fixed and spare.host not in ledger.excluded_hosts)
    left = max(0, plan.recovery.max_restarts - len(counted))
    ports = FIRST_PORT, FIRST_PORT + PORTS - 1
    return AutonomyTerms(left, rules, ports, base=base, spares=hot, window=window, spent=spent)


def _is_worth_it(transition: Transition, ready: Sequence[Node]) -> bool:
    """Say whether a generation that is to be larger is: one that began with as many nodes would only cost time."""
    generation = transition.observed.control.generation
    return not transition.want.keep_budget or generation is None or len(ready) > len(generation.members)


def _ledger(transition: Transition, image: Image | None, clock: Clock, failure: Failure | None) -> Ledger:
    """Return the ledger that goes with the generation; its image is the one that was prepared, if any was."""
    want, before = transition.want, transition.observed.control.ledger
    image = image or before.image
    if failure is None and not want.keep_budget:
        return before.renewed(clock.now(), want.code, image)
    after = before.with_failure(failure, clock.now()) if failure else before
    excluded = tuple(sorted({*before.excluded, *want.excluded}))
    return replace(after, code=want.code, result=None, excluded=excluded, image=image)


def fresh_run(plan: Plan, last: Generation | None, exists: Callable[[str], bool]) -> Fresh:
    """Return a run that shares nothing with earlier ones: the first subdirectory `fresh-N` that is not there yet."""
    base = plan.checkpoint.dir if plan.checkpoint else None
    number = 1
    while base is not None and exists(f"{base}/fresh-{number}"):
        number += 1
    seed = f"{plan.run_id} {last.run_id if last else ''} {number}"
    run_id = f"{plan.job}-{sha256(seed.encode()).hexdigest()[:8]}"
    return Fresh(run_id, None if base is None else f"{base}/fresh-{number}")
