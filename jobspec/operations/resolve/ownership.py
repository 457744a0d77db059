"""The owner of a job: a command leaves alone what belongs to another user or another folder."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import NotYours, OperationError
from jobctl.jobspec.operations.resolve.job import is_spec_file, spec_path
from jobctl.jobspec.operations.resolve.planning import owner
from jobctl.jobspec.operations.targets.table import known_handle
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan


def refuse_owner(deployer: Handle, observed: Observed, take_over: bool) -> None:
    """Raise NotYours if the job, or what is left of it, is another user's."""
    others = sorted(deployer.owners(observed) - {owner()})
    if others and not take_over:
        name = deployer.job.name
        raise NotYours(
            f"job `{name}` belongs to {', '.join(others)}, and is left alone",
            "give yours another `name`, or `--take-over` if it is yours nevertheless",
        )


def refuse_superseded(deployer: Handle, observed: Observed, take_over: bool) -> None:
    """Raise NotYours if the job was changed from another machine since: what is known of it here would undo that."""
    plan = deployer.job.plan()
    other = deployer.job.standing(plan).overruled_by(observed.control.generation) if plan is not None else None
    if other is not None and not take_over:
        raise NotYours(
            f"job `{deployer.job.name}` was changed from {other.machine}, and is another one now than is known here",
            "`jobctl up` makes it what the spec here says; `--take-over` goes on with what was started from here",
        )


# Two folders, one name.


def refuse_other_folder(directory: JobDir, job: str | None, take_over: bool) -> None:
    """Raise NotYours if JOB is a spec file, and the job of that name came from another folder; a name means what is known."""
    if take_over or (job is not None and not is_spec_file(job)):
        return
    before, here = spec_of(directory), spec_path(job)
    if before is not None and before.exists() and not same_folder(before, here):
        raise NotYours(
            f"job `{directory.name}` was started from {before}, not from {here.absolute()}, and is left alone",
            f"name it if you mean that one (`{directory.name}` instead of the file), or `--take-over`",
        )


def is_alive(observed: Observed) -> bool:
    """Say whether a job runs on this machine: what has ended leaves nothing behind that anyone would have to find again.

    Launchers of a job that has succeeded live for a moment more.
    """
    from jobctl.jobspec.deploy.model.observed import phase

    return any(node.alive for node in observed.nodes) and phase(observed)[0] != "succeeded"


def refuse_others(
    deployer: Handle, compiled: Compiled, plan: Plan, reporter: Reporter, *, fresh: bool, take_over: bool
) -> None:
    """Raise NotYours if `up` would replace a job of another folder, or train where another job writes.

    The reporter is warned of what only may be so.
    """
    if take_over:
        return
    before = spec_of(deployer.job)
    if before is not None and before.exists() and not same_folder(before, compiled.path):
        _refuse_replacing(deployer, before)
    if not fresh:
        _refuse_rivals(deployer, compiled, plan, reporter)


def warn_of_refusal(deployer: Handle, compiled: Compiled, plan: Plan, reporter: Reporter, *, take_over: bool) -> None:
    """Say why `up` would refuse what a command only looks at."""
    try:
        refuse_others(deployer, compiled, plan, reporter, fresh=False, take_over=take_over)
    except OperationError as refusal:
        reporter.warn(f"`up` refuses this: {refusal.message}")


def warn_of_another_spec(deployer: Handle, compiled: Compiled, reporter: Reporter) -> None:
    """Say that a job of this name was started from another file: who copies a project forgets to rename the job."""
    before, now = spec_of(deployer.job), compiled.path.absolute()
    if before is None or before == now:
        return
    name = deployer.job.name
    if not before.exists():
        reporter.say(f"job `{name}` was started from {before}, which is gone: it goes on from {now}")
    elif not before.samefile(now):
        reporter.warn(f"job `{name}` was started from {before}, and becomes what {now} says")


def spec_of(directory: JobDir) -> Path | None:
    """Return the spec file that a job was last brought up from."""
    spec = (directory.job_record() or {}).get("spec")
    return Path(spec) if spec else None


def same_folder(one: Path, other: Path) -> bool:
    """Say whether two specs are in one folder."""
    from jobctl.jobspec.spec.reading.source import folder_of

    return os.path.realpath(folder_of(one)) == os.path.realpath(folder_of(other))


def _refuse_replacing(deployer: Handle, before: Path) -> None:
    from jobctl.jobspec.deploy.model.observed import phase

    observed = deployer.observe()
    now, _ = phase(observed)
    nothing = observed.control.generation is None and not observed.unreachable and not _lives(observed)
    if nothing and observed.verdict is None:
        return  # its `up` was killed before anything ran
    if now not in ("succeeded", "failed"):
        name = deployer.job.name
        raise NotYours(
            f"job `{name}` was started from {before}, and is {now}: it is left alone",
            f"give yours another `name`, or `--take-over` if it is to replace that one; `jobctl down {name}` ends it",
        )


def _lives(observed: Observed) -> bool:
    return any(node.alive for node in observed.nodes)


# Two names, one checkpoint.


def _refuse_rivals(deployer: Handle, compiled: Compiled, plan: Plan, reporter: Reporter) -> None:
    """Raise NotYours if a running job of another name is this one before it was renamed, or writes the same checkpoints.

    A path may mean different directories on different hosts: only a job on a host of this one surely writes the same.
    Of all others, and of those that do not answer, the reporter is warned.
    """
    from jobctl.jobspec.deploy.store.jobdir import readable_jobs

    for other in readable_jobs(deployer.job.root.parent.parent):
        theirs = other.plan()
        if other.name == plan.job:
            continue
        shared, renamed = _shared_checkpoint(plan, theirs), _was_renamed(compiled, plan, other)
        if shared is None and not renamed:
            continue
        observed, silent = _look_at(other)
        if observed is not None and not _is_in_the_way(observed, deployer, plan, shared):
            continue
        why = f"it writes to {shared}" if shared else f"it was started from {spec_of(other)} before its `name` changed"
        refusal = _refusal(other.name, why, silent)
        if renamed or (observed is not None and theirs is not None and _share_a_host(plan, theirs)):
            raise refusal
        if silent is not None:
            reporter.warn(refusal.message)
        else:
            reporter.warn(
                f"job `{other.name}` still runs and writes to {shared}, on other hosts: is that another disk?"
            )


def _refusal(name: str, why: str, silent: str | None) -> NotYours:
    if silent is not None:
        return NotYours(
            f"nobody can tell whether job `{name}` still runs ({silent}), and {why}",
            "name another `checkpoint`, or `--take-over` if that job has ended",
        )
    return NotYours(
        f"job `{name}` still runs, and {why}: both jobs would write the same checkpoints",
        f"`jobctl down {name}` first, or another `checkpoint` (`per_job: true` gives each job a folder in it); a job that"
        " only reads these mounts them with `volumes` and names no such `checkpoint`; `--take-over` if both are to run",
    )


def _look_at(other: JobDir) -> tuple[Observed | None, str | None]:
    """Return how another job is, or why nobody can tell."""
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.model.observed import phase

    try:
        with closing(known_handle(other)) as handle:
            observed = handle.observe()
    except AllUnreachable as failed:
        return None, "none of its hosts answers" if failed.message else "its cluster does not answer"
    except (OperationError, DeployError) as failed:  # its context has gone from the kubeconfig, say
        return None, failed.message
    now, reason = phase(observed)
    return (None, reason or now) if now == "unknown" else (observed, None)


def _shared_checkpoint(plan: Plan, theirs: Plan | None) -> str | None:
    """Return the checkpoint directory that both jobs have by its path, None if there is none.

    In a cluster a volume says what a path means, and without `shared` each host has its own directory there.
    """
    if plan.checkpoint is None or theirs is None or theirs.checkpoint is None:
        return None
    same = os.path.realpath(plan.checkpoint.dir) == os.path.realpath(theirs.checkpoint.dir)
    if not same or any(traits_of(one.target).mounts_by_name for one in (plan, theirs)):
        return None
    everywhere = plan.checkpoint.shared and theirs.checkpoint.shared and _in_one_place(plan, theirs)
    return plan.checkpoint.dir if everywhere or _share_a_host(plan, theirs) else None


def _in_one_place(plan: Plan, theirs: Plan) -> bool:
    return traits_of(plan.target).place == traits_of(theirs.target).place


def _share_a_host(plan: Plan, theirs: Plan) -> bool:
    """Say whether both jobs have a node on one host: hosts files may give one host several names, or one name to several."""
    if not _in_one_place(plan, theirs):
        return False
    ours, its = ({node.host.address for node in one.nodes} for one in (plan, theirs))
    return traits_of(plan.target).is_here or bool(ours & its)


def _was_renamed(compiled: Compiled, plan: Plan, other: JobDir) -> bool:
    """Say whether the other job came from this file when that had another `name`, and ours has no checkpoint of its own.

    One file may be meant for many jobs: where a variable or `--set` gives them their names.
    """
    from jobctl.jobspec.spec.load import literal_name

    about, theirs = other.job_record() or {}, other.plan()
    before = spec_of(other)
    if before is None or os.path.realpath(before) != os.path.realpath(compiled.path):
        return False
    given = any(one.partition("=")[0].strip() == "name" for one in (*compiled.overrides, *(about.get("set") or ())))
    if given or literal_name(compiled.path) != plan.job:
        return False
    return plan.checkpoint is None or (theirs is not None and theirs.checkpoint == plan.checkpoint)


def _is_in_the_way(observed: Observed, deployer: Handle, plan: Plan, shared: str | None) -> bool:
    """Say whether the other job runs, and does not write elsewhere (`--fresh`) than ours would."""
    from jobctl.jobspec.deploy.apply.generations import checkpoint_dir
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase

    if phase(observed)[0] in SETTLED:
        return False
    theirs, ours = observed.control.generation, deployer.observe()
    mine, up = ours.control.generation, phase(ours)[0] not in SETTLED
    if shared is None or theirs is None or plan.checkpoint is None:
        return not up
    if up and mine is not None and mine.checkpoint_dir == theirs.checkpoint_dir:
        return False  # both run already, as somebody wanted it
    return theirs.checkpoint_dir == (plan.checkpoint.dir if mine is None else checkpoint_dir(plan, mine))
