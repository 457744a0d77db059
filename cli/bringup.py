"""What `up` and `restart` do, told as it happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from jobctl import console
from jobctl.changed import another_secret, changed_keys, say_drift, secret_digests, unnamed
from jobctl.console import Failed
from jobctl.naming import node_number
from jobctl.options import Format, duration
from jobctl.outcome import Applied, finish_up, raise_code, tell_failures, wait_until_up
from jobctl.ownership import refuse_others, refuse_owner, warn_of_another_spec, warn_of_refusal
from jobctl.views.progress import Progress

if TYPE_CHECKING:
    from jobctl.jobs import Compiled
    from jobctl.jobspec.deploy.apply.changes import Changed
    from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures, Handle, RuntimeInputs
    from jobctl.jobspec.deploy.apply.reconcile import Step, Wanted
    from jobctl.jobspec.deploy.model.inventory import Inventory
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.plan.types import Plan

PATIENCE = 1.0  # seconds for which hosts are asked to stay until launchers have begun
ENGINES = 20.0  # seconds within which an engine that is restarted has to be back


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `up`."""

    dry_run: bool = False
    follow: bool = False
    fresh: bool = False
    supervise: bool = True
    check: bool = True
    break_lock: bool = False
    recreate: bool = False
    take_over: bool = False
    output: Format = Format.text
    changed: tuple[Changed, ...] | None = None  # keys of the spec, as `changed_keys` finds them
    start: RuntimeInputs | None = (
        None  # what processes get, where it is not this command's environment and the secrets of now
    )


@contextmanager
def locked(deployer: Handle, what: str, break_it: bool) -> Iterator[None]:
    """Hold the job's lock while steps are applied. Ends with 5 if someone else keeps it."""
    from jobctl.jobspec.deploy.store.lock import Locked

    try:
        with deployer.lock(what, break_it=break_it):
            yield
    except Locked as taken:
        raise locked_by(deployer, taken) from taken


def locked_by(deployer: Handle, taken: Exception) -> Failed:
    """Return the end of a command that did not get the lock."""
    return Failed(f"job `{deployer.job.name}` is {taken}", 5, "wait for it, or `--break-lock` if it hangs")


def up_job(deployer: Deployer, compiled: Compiled, plan: Plan, inventory: Inventory | None, options: Options) -> int:
    """Bring the job up and return the exit code."""
    options = replace(options, changed=changed_keys(compiled, plan, deployer, secrets=options.start is None))
    if options.dry_run:
        change = change_of(deployer, plan, options)
        tell_failures(deployer.failures)
        warn_of_refusal(deployer, compiled, plan)
        show_steps({"job": plan.job}, change, options.output)
        return 0
    refuse_others(deployer, compiled, plan, fresh=options.fresh, take_over=options.take_over)
    left = _left_out(deployer, plan, options) if options.check else {}
    with locked(deployer, "up", options.break_lock):
        done = _apply(deployer, compiled, plan, inventory, options, left)
    if options.output is Format.text:
        for one in unnamed(options.changed, done.steps):
            console.say(one.line)
    return finish_up(deployer, done, follow=options.follow, output=options.output)


@dataclass(frozen=True, slots=True)
class Change:
    """What a command is about to do: the steps from what runs to what should."""

    observed: Observed
    want: Wanted
    steps: tuple[Step, ...]

    @property
    def changed(self) -> tuple[Changed, ...]:
        """The keys of the spec that are not as what runs was started with."""
        return self.want.changed or ()

    @property
    def phase(self) -> str:
        """How the job stands."""
        from jobctl.jobspec.deploy.model.observed import phase

        return phase(self.observed)[0]


class Steps(Protocol):
    """What a command is about to do, wherever the job runs."""

    @property
    def changed(self) -> tuple[Changed, ...]:
        """The keys of the spec that are not as what runs was started with."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, none if nothing has to change."""

    @property
    def phase(self) -> str:
        """How the job stands."""


def look(deployer: Deployer) -> Observed:
    """Look at what runs; engines of a running job that do not answer get a moment to come back first."""
    from jobctl.jobspec.deploy.model.errors import AWAY

    observed = deployer.observe()
    away = {host for host, error in deployer.failures.items() if getattr(error, "code", "") in AWAY}
    away &= set(observed.control.placement.values())
    if not away:
        return observed
    console.say(f"waits for the Docker Engine of {', '.join(sorted(away))}, for {ENGINES:g} s at most")
    return deployer.observe() if away - set(deployer.engines(away, ENGINES)) else observed


def change_of(deployer: Deployer, plan: Plan, options: Options, *, waits: bool = False) -> Change:
    """Look at what runs, and return what there is to do; with `waits`, engines that restart are waited for."""
    from jobctl.jobspec.deploy.apply.executor import wanted
    from jobctl.jobspec.deploy.apply.reconcile import reconcile

    anew = "`--fresh`: a new run" if options.fresh else "`--recreate`" if options.recreate else None
    anew = anew or another_secret(options.changed)
    every = frozenset(node.index for node in plan.nodes) if options.recreate else frozenset()
    observed = look(deployer) if waits else deployer.observe()
    spares = deployer.spares(plan)
    how = {"supervise": options.supervise, "spares": spares, "changed": options.changed}
    want = wanted(deployer, plan, anew=anew, replace=every, **how)
    return Change(observed, want, reconcile(want, observed))


def show_steps(whole: dict[str, Any], change: Steps, output: Format) -> None:
    """Print steps; in JSON beside `whole`, which names the job."""
    if output is Format.json:
        steps = [{"kind": step.kind, "target": step.target, "cause": step.cause} for step in change.steps]
        console.out_json({**whole, "changes": [one.to_json() for one in change.changed], "steps": steps})
        return
    for step in change.steps:
        console.out(str(step))
    rest = unnamed(change.changed, change.steps)
    for one in rest:
        console.out(one.line)
    if not change.steps and not rest:
        console.say(f"nothing to do: job `{whole['job']}` is {change.phase} as the spec says")


def _left_out(deployer: Deployer, plan: Plan, options: Options) -> Failures:
    """Check the hosts that something is to be done on; return those that are not fit, and why. Ends with 3 if none is."""
    from jobctl.preflight import failures_of, show_findings

    change = change_of(deployer, plan, options, waits=True)
    refuse_owner(deployer, change.observed, options.take_over)
    homes = {step.host for step in change.steps if step.kind in ("start", "replace")}
    if not homes:
        return {}
    findings = deployer.preflight(plan, homes)
    left = failures_of(findings)
    show_findings([f for f in findings if f.verdict == "warning"])
    if set(left) >= {node.host.name for node in plan.nodes}:
        tell_failures(left)
        raise Failed(
            f"no host is fit for job `{plan.job}`: nothing was changed",
            3,
            "`--skip-check` goes on all the same",
            {"job": plan.job, "failed_hosts": [console.failure_json(h, e) for h, e in left.items()]},
        )
    return left


def _apply(
    deployer: Deployer, compiled: Compiled, plan: Plan, inventory: Inventory | None, options: Options, left: Failures
) -> Applied:
    from jobctl.jobspec.deploy.apply.clock import SystemClock
    from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
    from jobctl.jobspec.deploy.apply.executor import Execution, execute, fresh_run, is_held, runs
    from jobctl.jobspec.deploy.model.errors import DeployError

    change = change_of(deployer, plan, options, waits=not options.check)
    observed, steps = change.observed, change.steps
    refuse_owner(deployer, observed, options.take_over)
    refuse_others(deployer, compiled, plan, fresh=options.fresh, take_over=options.take_over, tell=False)
    homes = {node.host.name for node in plan.nodes} | {node.host for node in observed.nodes}
    failed = {host: error for host, error in {**deployer.failures, **left}.items() if host in homes}
    read = secrets_of(compiled) if options.start is None and (steps or deployer.job.is_changing()) else {}
    start = options.start or RuntimeInputs(console.environ(), read)
    warn_of_another_spec(deployer, compiled)
    if left and is_held(change.want, steps, observed, failed):  # a person has to mend that first
        return Applied(plan, steps, failed, ready=True, held=True, supervised=False)
    deployer.job.create()
    before = deployer.job.plan()
    withdrawn = not steps and deployer.job.is_changing()  # its files are on the hosts, and have to be replaced
    keep = deployer.job.propose if steps and runs(observed) else deployer.job.remember
    keep(about(compiled, plan, inventory), plan, source_of(compiled, plan, start.secrets))
    generation = observed.control.generation
    if not steps and not withdrawn:
        return Applied(plan, (), failed, generation is not None)
    fresh = fresh_run(plan, generation, deployer.exists) if options.fresh else None
    tell_up(deployer, plan, fresh=options.fresh)
    note = teller(deployer, options.output)
    try:
        with Progress(quiet=options.output is Format.json) as progress:
            deployer.tell = progress.show
            failed |= deployer.prepare(plan, start)
        if fresh and fresh.checkpoint_dir:
            deployer.make_directory(fresh.checkpoint_dir)
        prepared = {node.host.name for node in plan.nodes} - set(failed)
        deployer.job.mark_prepared(prepared)
        how = Execution(None, fresh, failed, PATIENCE, ENGINES, deployer.job.adopt)
        done = execute(deployer, change.want, steps, observed, SystemClock(), note, how)
        if not done.held and before is not None and secret_names(before) - secret_names(plan):
            deployer.leave_secrets({name: start.secrets[name] for name in secret_names(plan)})
    except DeployError as error:
        raise Failed(error.message, 3, error.hint) from error
    if any(step.kind == "supervise" for step in steps) and set(done.failed) < {node.host.name for node in plan.nodes}:
        start_supervisor(deployer.job)
    ready = generation is not None or done.generation is not None
    # A supervisor can make the change later only where hosts have got all that it needs.
    later = prepared >= {node.host.name for node in plan.nodes} and (options.supervise or bool(observed.supervised))
    return Applied(plan, steps, done.failed, ready, done.held, later)


def secret_names(plan: Plan) -> set[str]:
    """Return the names of the secrets that a plan's processes get."""
    return {name for node in plan.nodes for name in node.launch.secrets}


def tell_up(deployer: Handle, plan: Plan, *, fresh: bool = False) -> None:
    """Record what is brought up: `report` tells it even when the job is down."""
    from jobctl.jobspec.deploy.store import events

    nodes = f"{len(plan.nodes)} node{'' if len(plan.nodes) == 1 else 's'}"
    message = f"up: {plan.framework} on {nodes}, target {plan.target}"
    told = {"framework": plan.framework, "target": plan.target, "fresh": fresh}
    events.record(deployer.job.events, time.time(), "up", message, **told)


def teller(deployer: Handle, output: Format) -> Any:
    """Return what tells of each step, as an event and to whoever looks on."""
    from jobctl.jobspec.deploy.store import events

    def note(step: Step) -> None:
        events.record(deployer.job.events, time.time(), "step", str(step), **step.fields(), by="up")
        if output is Format.text:
            console.say(str(step))

    return note


def about(
    compiled: Compiled, plan: Plan, inventory: Inventory | None, cluster: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what is kept of how a job was started, for commands that name only the job."""
    from jobctl.jobspec.deploy.model.inventory import dump_inventory

    return {
        "job": plan.job,
        "target": plan.target,
        "spec": str(compiled.path.absolute()),
        "hosts": str(compiled.hosts_path.absolute()) if compiled.hosts_path else None,
        "on": compiled.on,
        "exclude": compiled.exclude,
        "set": list(compiled.overrides),
        "reach": dump_inventory(inventory) if inventory else None,
        "cluster": cluster,
        "owner": plan.owner,
        "started_at": time.time(),
    }


def source_of(compiled: Compiled, plan: Plan, secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return what the supervisor plans the job anew from when a node has to move; hosts are in what is said about it."""
    from dataclasses import asdict

    from jobctl.jobs import context_of, job_of_name

    return {
        "spec": compiled.spec.model_dump(mode="json"),
        "context": asdict(context_of(compiled)),
        "count": len(plan.nodes) if plan.elastic else None,
        "secrets": secret_digests(compiled, job_of_name(plan.job), secrets),
    }


def secrets_of(compiled: Compiled) -> dict[str, str]:
    """Return the values of the job's secrets. Ends with 2 for one that cannot be read."""
    from jobctl.jobspec.deploy.store.secrets import SecretMissing, read_secrets

    try:
        return read_secrets(compiled.spec.secrets, compiled.directory, console.environ())
    except SecretMissing as missing:
        raise Failed(str(missing), 2, missing.hint) from missing


def start_supervisor(job: JobDir) -> None:
    """Leave a supervisor behind that outlives this command and its terminal."""
    from jobctl.jobspec.deploy.targets import background

    background.start_supervisor(
        job,
        [sys.executable, "-m", "jobctl", "supervise", job.name, "--background"],
        {**console.environ(), "JOBCTL_STATE_DIR": str(job.root.parent.parent)},
    )


def grace_of(deployer: Handle, timeout: str | None) -> float:
    """Return how long processes get to end: as asked for, else as the spec says."""
    if timeout is not None:
        return duration(timeout)
    return deployer.plan.stop_grace if deployer.plan else 10.0


def restart_job(deployer: Deployer, node: str | None, break_it: bool, take_over: bool, output: Format) -> None:
    """Begin a new generation, whatever runs."""
    from jobctl.jobspec.deploy.apply.clock import SystemClock
    from jobctl.jobspec.deploy.apply.executor import Execution, execute, wanted
    from jobctl.jobspec.deploy.apply.reconcile import reconcile
    from jobctl.jobspec.deploy.model.errors import DeployError

    plan = deployer.plan
    if plan is None:
        raise Failed(f"job `{deployer.job.name}` is not up", 2, "`jobctl up` starts it")
    say_drift(deployer.job)
    anew = frozenset() if node is None else frozenset({node_number(plan, node, range(len(plan.nodes)))})
    with locked(deployer, "restart", break_it):
        observed = look(deployer)
        refuse_owner(deployer, observed, take_over)
        want = wanted(deployer, plan, anew="`jobctl restart`", replace=anew)
        steps = reconcile(want, observed)
        try:
            note = teller(deployer, output)
            # Where a change waits, its files are on the hosts already: what runs is started again from its own.
            starts = {step.host for step in steps if step.kind in ("start", "replace") and step.node is not None}
            failed = deployer.provision(plan, starts) if deployer.job.is_changing() and starts else {}
            how = Execution(failed=failed, patience=PATIENCE, engines=ENGINES)
            done = execute(deployer, want, steps, observed, SystemClock(), note, how)
        except DeployError as error:
            raise Failed(error.message, 3, error.hint) from error
        if any(step.kind == "supervise" for step in steps):
            start_supervisor(deployer.job)
    failed = {**deployer.failures, **done.failed}
    tell_failures(failed)
    if done.generation is None:
        raise Failed("", 4)
    raise_code(wait_until_up(deployer, output, failed) or (4 if failed else 0))
