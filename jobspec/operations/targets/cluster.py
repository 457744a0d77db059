"""Jobs in a Kubernetes cluster: how they are found, planned and checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused, UnsupportedOnTarget
from jobctl.jobspec.operations.resolve.job import job_of_name
from jobctl.jobspec.operations.resolve.planning import plan_of
from jobctl.jobspec.operations.unsupported import unsupported

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.kubernetes.api import Api
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled, Reached
    from jobctl.jobspec.operations.targets.base import CheckRequest, RunRequest
    from jobctl.jobspec.plan.types import Plan


class InCluster:
    """The jobs in one namespace of a cluster."""

    def known(self, directory: JobDir, reached: Reached) -> Cluster:
        """Return a job in its cluster, or in that of `reached`."""
        return cluster_of(directory, reached.context, reached.namespace)

    def homes(self, directory: JobDir) -> list[str]:
        """Return its cluster and namespace."""
        from jobctl.jobspec.deploy.kubernetes.access import load_access

        known = (directory.job_record() or {}).get("cluster")
        place = load_access(known).place if known else None
        return [place] if place is not None else []

    def in_spec(self, spec: Path, directory: JobDir, reached: Reached) -> None:
        """Return None: with a cluster in its spec, a job may run elsewhere as well."""

    def planned(self, compiled: Compiled, reached: Reached) -> tuple[Plan, Cluster]:
        """Return the plan of a compiled job and its cluster: as the options say, or the spec, or as it was started."""
        plan = plan_of(compiled)
        asked = compiled.spec.kubernetes
        context = reached.context or (asked.context if asked else None)
        namespace = reached.namespace or (asked.namespace if asked else None)
        if plan.cluster is not None and plan.cluster.namespace:
            # The server refuses objects that name another namespace than the one that they are brought to.
            plan = replace(plan, cluster=replace(plan.cluster, namespace=namespace))
        cluster = cluster_of(job_of_name(plan.job), context, namespace, plan)
        cluster.unchanged = _is_unchanged(cluster.job, compiled, plan)
        return plan, cluster

    def check(self, request: CheckRequest) -> tuple[Sequence[Finding], tuple[str, ...]]:
        """Return whether the cluster is fit, and its name."""
        compiled, reached, plan = request.compiled, request.reached, None
        if compiled is None:
            cluster = cluster_of(job_of_name("check"), reached.context, reached.namespace)
        else:
            plan, cluster = self.planned(compiled, reached)
        where = cluster.places()
        return cluster.preflight(plan, where, deep=request.deep), where

    def run(self, request: RunRequest, reporter: Reporter) -> int:
        """Raise UnsupportedOnTarget."""
        raise unsupported(request.compiled.target, "run") or UnsupportedOnTarget("there is no `run` in a cluster")


def cluster_of(directory: JobDir, context: str | None, namespace: str | None, plan: Plan | None = None) -> Cluster:
    """Return a job in its cluster: as the options say, otherwise as it was started. Raises Refused if no cluster is known."""
    from jobctl.jobspec.deploy.kubernetes.access import ClusterAccess, load_access
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster

    known = (directory.job_record() or {}).get("cluster")
    reach = load_access(known) if known else ClusterAccess()
    elsewhere = context not in (None, reach.context)
    api = _connected(context or reach.context, namespace or (None if elsewhere else reach.namespace))
    return Cluster(directory, api, plan, reach.kinds if reach.is_of(api) else None)


def _connected(context: str | None, namespace: str | None) -> Api:
    from jobctl.jobspec.deploy.kubernetes.api import connect
    from jobctl.jobspec.deploy.kubernetes.problems import ConfigError

    try:
        return connect(context, namespace, os.environ)
    except ConfigError as error:
        raise Refused(error.message, error.hint) from error


def _is_unchanged(job: JobDir, compiled: Compiled, plan: Plan) -> bool:
    """Say whether the spec and the code are those that the job was last brought up with, by whichever jobctl."""
    from pydantic import ValidationError

    from jobctl.jobspec.spec.model import spec_recorded

    source, before = job.source(), job.plan()
    try:
        spec = spec_recorded(source["spec"]) if source else None
    except ValidationError:
        return False
    return before is not None and spec == compiled.spec and _told(before) == _told(plan)


def _told(plan: Plan) -> object:
    """Return what of a plan the spec's own text does not say: files of variables, and code."""
    return plan.code.version if plan.code else None, [node.container.env for node in plan.nodes]
