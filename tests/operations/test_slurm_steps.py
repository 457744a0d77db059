"""What `up` is about to do to a job in Slurm, from how the job stands and what was sent."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.operations.lifecycle.base import UpOptions
from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob, hashes_of
from tests.render.plans import SLURM, planned

PLAN = planned(dict(SLURM)["slurm"], "slurm")
SENT = hashes_of(PLAN)
FRESH = "`--fresh`: a new run"


def steps(phase: str, options: UpOptions, *, begins_runs: bool = True, **sent: Any) -> list[str]:
    handle: Any = SimpleNamespace(plan=PLAN, sent=lambda: {**SENT, **sent}, begins_runs=lambda: begins_runs)
    observed = Observed(NOTHING, (), None, verdict=(phase, None))  # type: ignore[arg-type]
    return [str(step) for step in SlurmJob(handle)._steps(observed, (), options)]


class PlayedJob(SlurmJob):
    """A job that runs, with the files of an earlier spec."""

    def __init__(self, **sent: Any) -> None:
        self.kept: dict[str, Any] = {**SENT, **sent}
        self.sending: str | None = None  # what goes wrong as files are sent
        self.ordering: str | None = None  # the same as the generation is begun
        self.work = "/shared/tiny"
        self.plan, self.tell = PLAN, print
        handle: Any = self
        self.login = self.files = handle
        super().__init__(handle)

    def sent(self) -> dict[str, Any]:
        return self.kept

    def write(self, path: str, content: bytes) -> None:
        assert path == "run/sent.json"
        self.kept = json.loads(content)

    def send(self, *_: Any, **__: Any) -> None:
        """Play that files, or secrets, are sent."""
        if self.sending:
            raise HostError("login", "unreachable", self.sending)

    send_secrets = send

    def _order(self, command: str, **more: object) -> None:
        if self.ordering:
            raise HostError("login", "slurm-silent", self.ordering)

    def up(self) -> list[str]:  # type: ignore[override]
        """Do what `up` would do now, and return it."""
        observed = Observed(NOTHING, (), None, verdict=("running", None))  # type: ignore[arg-type]
        done = self._steps(observed, (), UpOptions())
        for step in done:
            self._do(step, {}, fresh=False)
        return [str(step) for step in done]


CHANGED = ["change files: launch.json differs", "generation 1: launch.json differs"]


@pytest.mark.parametrize("where", ["sending", "ordering"])
def test_an_up_that_was_cut_off_before_its_generation_is_done_by_the_next_one(where: str) -> None:
    job = PlayedJob(**{"launch.json": "?"})
    setattr(job, where, "the connection is lost")
    for _ in range(2):
        with pytest.raises(HostError):
            job.up()
    setattr(job, where, None)
    assert job.up() == CHANGED
    assert (job.up(), job.kept) == ([], SENT)


def test_what_a_cut_off_up_has_sent_is_replaced_though_the_spec_is_what_it_was() -> None:
    """Nobody knows which files have arrived."""
    job = PlayedJob(**{"launch.json": "?"})
    job.sending = "the connection is lost"
    with pytest.raises(HostError):
        job.up()
    job.kept, job.sending = {**job.kept, **SENT}, None
    why = "an `up` was cut off before a generation began with what it sent"
    assert job.up() == [f"change files: {why}", f"generation 1: {why}"]
    assert (job.up(), job.kept) == ([], SENT)


@pytest.mark.parametrize(
    ("phase", "wanted"),
    [
        ("running", [f"generation 1: {FRESH}"]),
        ("degraded", [f"generation 1: {FRESH}"]),
        ("pending", [f"replace allocation: {FRESH}"]),  # its batch script may read the files just now
        ("stopped", [f"create allocation: {FRESH}"]),
        ("succeeded", [f"create allocation: {FRESH}"]),
    ],
)
def test_a_fresh_run_takes_the_allocation_that_runs(phase: str, wanted: list[str]) -> None:
    assert steps(phase, UpOptions(fresh=True)) == wanted


def test_a_fresh_run_needs_another_allocation_where_its_coordinator_cannot_begin_one() -> None:
    """That of an earlier version, or of a change that only Slurm can make."""
    assert steps("running", UpOptions(fresh=True), begins_runs=False) == [f"replace allocation: {FRESH}"]
    assert steps("running", UpOptions(fresh=True), **{"job.sbatch": "?"}) == [f"replace allocation: {FRESH}"]


def test_a_fresh_run_brings_changed_files() -> None:
    assert steps("running", UpOptions(fresh=True), **{"launch.json": "?"}) == [
        "change files: launch.json differs",
        f"generation 1: {FRESH}",
    ]


@pytest.mark.parametrize("phase", ["running", "pending", "succeeded"])
def test_without_a_change_there_is_nothing_to_do(phase: str) -> None:
    assert steps(phase, UpOptions()) == []
