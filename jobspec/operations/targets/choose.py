"""Which target is meant: by options, and by what is recorded of a job. No other operation names targets to choose one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.spec.targets import TARGETS, Starter, TargetName, traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.resolve.job import Reached, Where

WITH_HOSTS: TargetName = "compose"
WITH_CONTEXT: TargetName = "kubernetes"
WITH_NEITHER: TargetName = "local"
NO_JOB: Starter = "ssh"  # for hosts that are looked at without a job: it asks for no more than an engine


def names_cluster(where: Where | Reached) -> bool:
    """Say whether options name a cluster."""
    return where.context is not None or where.namespace is not None


def may_take_hosts(target: TargetName | None) -> bool:
    """Say whether a hosts file may tell where a job runs, with the target that was asked for, if one was."""
    return target is None or TARGETS[target].takes_hosts


def choose_target(where: Where) -> TargetName:
    """Return the target: asked for, or `compose` with hosts and `local` without.

    Raises Refused if there is no such target, or if options disagree.
    """
    chosen = where.target or (WITH_HOSTS if where.hosts else WITH_CONTEXT if names_cluster(where) else WITH_NEITHER)
    if chosen not in TARGETS:
        raise Refused(f"there is no target `{chosen}`", f"choose one of {', '.join(TARGETS)}")
    traits = TARGETS[chosen]
    if names_cluster(where) and not traits.takes_context:
        raise Refused(f"`--context` and `--namespace` choose a cluster, and target `{chosen}` has none")
    if where.hosts is None and (where.on or where.exclude):
        raise Refused("`--on` and `--exclude` choose from a hosts file", "name it: `--hosts hosts.txt`")
    if where.hosts and traits.no_hosts:
        raise Refused(*traits.no_hosts)
    return chosen


def where_recorded(where: Where, recorded: str) -> Where:
    """Return `where` with the target that a job was started on, if that goes with the options and none says otherwise.

    It chooses its nodes, or takes the hosts file that an option names.
    """
    traits = traits_of(recorded)
    elsewhere = names_cluster(where) and not traits.takes_context
    fits = traits.chooses_nodes if where.hosts is None else traits.takes_hosts
    if where.target is not None or not fits or elsewhere:
        return where
    return replace(where, target=cast(TargetName, recorded))


def target_of(directory: JobDir, reached: Reached) -> TargetName:
    """Return the target on which a job is looked for: that of the options, otherwise the one it was started on."""
    if names_cluster(reached):
        return WITH_CONTEXT
    return cast(TargetName, (directory.job_record() or {}).get("target") or WITH_NEITHER)
