"""Names that a user may mean, for the shell's completion: read from small files, without a check and without YAML.

Nothing heavy is imported here: a person waits for each answer between two keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.store.files import read_json

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir

SPEC_SUFFIXES = (".yaml", ".yml")


def job_names() -> list[str]:
    """Return the names of all jobs that are up, or have a history here."""
    return [job.name for job in _jobs()]


def spec_files(begun: str) -> list[str]:
    """Return the spec files, and the folders that may have some, whose paths begin with `begun`."""
    head, slash, tail = begun.rpartition("/")
    folder = Path(os.path.expanduser(head + slash) or ".")
    found = []
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.name.startswith(tail) and (tail or not entry.name.startswith(".")):
            if entry.is_dir():
                found.append(f"{head}{slash}{entry.name}/")
            elif entry.suffix in SPEC_SUFFIXES:
                found.append(f"{head}{slash}{entry.name}")
    return found


def node_names(job: str | None) -> list[str]:
    """Return the numbers of a known job's nodes, and the names of its services."""
    directory = _known(job)
    plan: dict[str, Any] = (directory and read_json(directory.root / "plan.json")) or {}
    nodes = [str(node["index"]) for node in plan.get("nodes", ())]
    serving = ["scheduler" for node in plan.get("nodes", ()) if node.get("role") == "scheduler"]
    return [*nodes, *serving, *(str(service["name"]) for service in plan.get("services", ()))]


def host_names(job: str | None, hosts: Path | None) -> list[str]:
    """Return the hosts of a hosts file; without one, those of a known job or of the user's default."""
    from jobctl.jobspec.operations.resolve.settings import default_hosts

    directory = _known(job) if hosts is None else None
    about = (directory and read_json(directory.root / "job.json")) or {}
    if about.get("reach"):
        return [str(host["name"]) for host in about["reach"]["hosts"]]
    path = hosts or default_hosts().value
    if path is None:
        return []
    from jobctl.jobspec.spec.hosts import load_hosts

    return [host.name for host in load_hosts(path).hosts]


def _jobs() -> Iterator[JobDir]:
    from jobctl.jobspec.deploy.store.jobdir import JobDir, state_dir

    for root in sorted((state_dir(os.environ) / "jobs").glob("*/")):
        yield JobDir(root)


def _known(job: str | None) -> JobDir | None:
    """Return the job that JOB means: its name, or the spec file that it was started from."""
    file = os.path.realpath(job or "job.yaml")
    for one in _jobs():
        spec = (read_json(one.root / "job.json") or {}).get("spec")
        if one.name == job or (isinstance(spec, str) and os.path.realpath(spec) == file):
            return one
    return None
