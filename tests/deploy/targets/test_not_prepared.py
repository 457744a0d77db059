"""Hosts that lack files of the job: `status` finds there why their nodes do not start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jobctl.jobspec.deploy.model.errors import HostError, NotPrepared
from jobctl.jobspec.deploy.targets.launcher_containers import LauncherContainers
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import RUNNING


def test_it_is_written_down_where_files_of_the_job_are_missing_and_nowhere_else() -> None:
    """A node that is to move to such a host is not there, and a host that is full may not take a line."""
    told: list[tuple[str, int, str | None]] = []

    def place(name: str) -> Any:
        def announce(node: int, report: object, reason: str | None) -> None:
            told.append((name, node, reason))

        return SimpleNamespace(host=Host(name), announce=announce)

    fleet: Any = SimpleNamespace(
        seen={}, known=RUNNING.control, host_jobs={name: place(name) for name in ("h0", "h1", "s1")}
    )
    missing = {name: NotPrepared(name, "the code is not there") for name in ("h1", "s1")}
    LauncherContainers(fleet).tell_not_prepared({"h0": HostError("h0", "disk-full", "no room"), **missing})
    assert told == [("h1", 1, "cannot be started on h1: the code is not there")]
