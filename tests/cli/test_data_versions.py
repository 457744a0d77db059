"""Which version of data a job has whose data is on hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.operations.errors import HostsFailed, Refused
from jobctl.jobspec.operations.lifecycle.records import refuse_missing_data
from jobctl.jobspec.operations.resolve.data import data_versions, versions_in
from jobctl.jobspec.operations.resolve.planning import plan_of
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.plan.serial import dump_plan, load_plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text

SPEC = "name: job\nframework: torch\nimage: i\ncommand: [t]\nper: node\ndata: ['gpu09:/d:/data', /here:/here]\n"
AWAY = HostError("gpu09", "no-route", "nobody answers")


class There:
    """The host that has the data."""

    def __init__(self, version: str | None, *, away: bool = False) -> None:
        self.version, self.away = version, away
        self.asked = list[str]()

    def data_versions(self, data: Iterable[Dataset]) -> tuple[Mapping[str, str | None], Mapping[str, HostError]]:
        names = {one.name: one.place for one in data}
        self.asked += names.values()
        return ({}, {"gpu09": AWAY}) if self.away else (dict.fromkeys(names, self.version), {})


def job(target: str = "ssh") -> Any:
    spec = load_text(Path("/specs/job.yaml"), SPEC, environ={}).spec
    assert spec is not None
    hosts = parse_hosts("gpu01\n", "hosts.txt").hosts
    given = {"spec": spec, "target": target, "hosts": hosts, "directory": Path("/specs"), "path": Path("job.yaml")}
    return SimpleNamespace(**given, hosts_path=Path("hosts.txt"))


def versions(there: There, old: Any = None, target: str = "ssh") -> list[str | None]:
    return list(data_versions(job(target), cast(Any, there), old).values())


def test_the_host_that_has_the_data_is_asked_and_no_other_target_asks() -> None:
    there = There("v1")
    assert versions(there) == ["v1"]
    assert there.asked == ["gpu09:/d"]
    assert versions(there, target="local") == []
    assert there.asked == ["gpu09:/d"]


def test_a_host_that_does_not_answer_leaves_the_version_that_the_job_has() -> None:
    given = job()
    made = planner.plan(given.spec, given.hosts, Context("ssh", "/specs", "me@here", "1.0"))
    old = load_plan(dump_plan(made))
    known = {**versions_in(old), old.data[0].name: "v0"}
    before = SimpleNamespace(data=[SimpleNamespace(name=name, version=version) for name, version in known.items()])
    assert "v0" in versions(There(None, away=True), before)
    assert "v1" in versions(There("v1"), before)
    with pytest.raises(HostsFailed, match="cannot look at data gpu09:/d: nothing was changed") as caught:
        versions(There(None, away=True))
    assert caught.value.exit_code == 3


def test_a_folder_that_is_not_there_is_refused_with_its_host() -> None:
    found = data_versions(job(), cast(Any, There(None)), None)
    plan = plan_of(job(), versions=found)
    with pytest.raises(Refused, match="there is no directory gpu09:/d to send: nothing was changed"):
        refuse_missing_data(plan)
