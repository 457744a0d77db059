"""What jobs and nodes are called: a job by its name or its spec file, a node by its number, or a name where it serves the others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import NamelessSpec, Refused
from jobctl.jobspec.operations.resolve.job import (
    AS_STARTED,
    DEFAULT_SPEC,
    Reached,
    checked_name,
    is_spec_file,
    job_of_name,
)
from jobctl.jobspec.operations.targets.choose import names_cluster

if TYPE_CHECKING:
    from jobctl.jobspec.plan.types import Plan

# Roles of which a job has one node, which is known by that name and not by its number.
SERVICES = ("scheduler",)


def name_of(job: str | None, reached: Reached = AS_STARTED) -> str:
    """Return the name of the job: all that commands on a running job need of its spec.

    Raises Refused where it cannot be told, or is not the name of the job that was started from the file; unless options
    say where a job of that name is.
    """
    if job is not None and not is_spec_file(job):
        return checked_name(job)
    from jobctl.jobspec.spec.load import read_name

    path = Path(job or DEFAULT_SPEC)
    loaded, started = read_name(path), _started_from(path)
    if job is None and not started and not os.path.lexists(path):
        raise Refused(
            f"no job is named, and there is no `{path}` here", "name one: `jobctl list` shows those that are up"
        )
    if loaded.name is None:
        about = (_said_of(started, path), _named_instead(started)) if started else ("", None)
        raise NamelessSpec(loaded.diagnostics, loaded.source, *about)
    elsewhere = reached.hosts is not None or names_cluster(reached)
    if started and loaded.name not in started and not elsewhere and job_of_name(loaded.name).job_record() is None:
        message = f"no job `{loaded.name}` is known here; {_said_of(started, path)}"
        raise Refused(message, _named_instead(started))
    return loaded.name


def _started_from(path: Path) -> tuple[str, ...]:
    """Return the names of the known jobs that were brought up from a spec file."""
    from jobctl.jobspec.deploy.store.jobdir import readable_jobs, state_dir

    here = os.path.realpath(path)
    jobs = ((job.name, (job.job_record() or {}).get("spec")) for job in readable_jobs(state_dir(os.environ)))
    return tuple(name for name, spec in jobs if spec is not None and os.path.realpath(spec) == here)


def _said_of(names: Sequence[str], path: Path) -> str:
    listed = ", ".join(f"`{name}`" for name in names)
    return f"job {listed} was started from {path}" if len(names) == 1 else f"jobs {listed} were started from {path}"


def _named_instead(names: Sequence[str]) -> str:
    return f"name the job: `jobctl status {names[0]}`, `jobctl down {names[0]}`"


def is_service(plan: Plan | None, text: str | None) -> bool:
    """Say whether `--node` names a service of the job: it runs beside the nodes, and has no number."""
    return plan is not None and any(service.name == text for service in plan.services)


def node_number(plan: Plan | None, text: str, among: Iterable[int] | None = None) -> int:
    """Return the number of the node that `--node` names, by number or name; one of `among`, where that is given.

    Raises Refused if there is none such.
    """
    serving = [node.index for node in plan.nodes if node.role == text] if plan is not None and text in SERVICES else []
    number = serving[0] if serving else int(text) if re.fullmatch("[0-9]{1,9}", text) else None
    known = None if among is None else sorted(among)
    if number is None or (known is not None and number not in known):
        raise Refused(f"the job has no node `{text}`", _nodes(known))
    return number


def _nodes(known: list[int] | None) -> str:
    if not known:
        return "nodes are numbered from 0"
    if known == list(range(len(known))):
        return "its only node is 0" if len(known) == 1 else f"its nodes are 0 to {known[-1]}"
    return f"its nodes are {', '.join(map(str, known))}"
