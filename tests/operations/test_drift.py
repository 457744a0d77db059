"""Which keys of the spec are not as the job was started with, and what each of them makes necessary."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.operations.resolve.drift import changed_keys
from jobctl.jobspec.operations.resolve.job import Compiled
from jobctl.jobspec.operations.resolve.planning import plan_of
from jobctl.jobspec.render.artefact import ids
from jobctl.jobspec.spec.hosts import parse_hosts
from tests.plan.made import spec_of

HOSTS = parse_hosts("a\nb\n", "hosts.txt").hosts


def lines(before: str, now: str) -> list[str]:
    """Return what `plan` says of a job of two nodes that was started with one spec, and has another one by now."""
    path = Path("/specs/job.yaml")
    compiled = Compiled(spec_of(f"nodes: 2\n{now}"), path.parent, path, "ssh", HOSTS, None, None, None, ())
    plan = plan_of(compiled)
    kept = {"spec": spec_of(f"nodes: 2\n{before}").model_dump(mode="json"), "secrets": {}}
    deployer = SimpleNamespace(ids=ids, job=SimpleNamespace(source=lambda: kept, plan=lambda: plan))
    found = changed_keys(compiled, plan, cast(Any, deployer))
    assert found is not None
    return [one.line for one in found]


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ("off", "auto", "recovery.standby: off → auto"),
        ("auto", "off", "recovery.standby: auto → off"),
        ("auto", "{import: [a]}", 'recovery.standby: auto → {"import": ["a"]}'),
        ("{import: [a]}", "off", 'recovery.standby: {"import": ["a"]} → off'),
        ("{import: [a]}", "{import: [b]}", 'recovery.standby.import: ["a"] → ["b"]'),
    ],
)
def test_another_standby_restarts_nodes(before: str, now: str, change: str) -> None:
    said = lines(f"recovery: {{standby: {before}}}", f"recovery: {{standby: {now}}}")
    assert said == [f"{change}: restarts node 0, 1"]


def test_a_change_beside_a_hang_timeout_that_is_learned_is_named() -> None:
    hang = "recovery: {hang_timeout: auto}\n"
    assert lines(hang, f"{hang}env: {{A: b}}") == ["env.A: unset → b: restarts node 0, 1"]
    assert lines(hang, "recovery: {hang_timeout: auto, max_restarts: 0}") == [
        "recovery.max_restarts: 3 → 0: nothing to restart"
    ]
    assert lines(hang, "") == ["recovery.hang_timeout: auto → off: restarts node 0, 1"]
