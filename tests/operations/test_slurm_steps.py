"""What `up` is about to do to a job in Slurm, from how the job stands and what was sent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from jobctl.jobspec.deploy.apply.changes import Changed
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed, Phase
from jobctl.jobspec.deploy.slurm import allocation
from jobctl.jobspec.deploy.slurm import steps as slurm_steps
from jobctl.jobspec.deploy.slurm.queue import QueueEntry, SlurmLook
from jobctl.jobspec.deploy.slurm.sent_files import hashes_of
from jobctl.jobspec.deploy.slurm.steps import Submitted
from jobctl.jobspec.deploy.targets import background
from jobctl.jobspec.notify import channels as kept_channels
from jobctl.jobspec.operations.errors import HostsFailed, PartlyDone
from jobctl.jobspec.operations.lifecycle import in_allocation
from jobctl.jobspec.operations.lifecycle.base import UpOptions
from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob
from jobctl.jobspec.operations.lifecycle.records import source_of
from jobctl.jobspec.operations.resolve.job import Where, check, compiled_of, job_of_name
from jobctl.jobspec.plan.types import Plan
from tests.render.plans import SLURM, planned

PLAN = planned(dict(SLURM)["slurm"], "slurm")
SENT = hashes_of(PLAN)
FRESH = "`--fresh`: a new run"


def steps(phase: Phase, *, fresh: bool = False, begins_runs: bool = True, **sent: Any) -> list[str]:
    now = Submitted(phase, "1", {**SENT, **sent}, begins_runs)
    return [str(step) for step in slurm_steps.steps(PLAN, now, (), fresh=fresh, recreate=False)]


def test_up_with_a_new_version_does_not_submit_a_job_again_because_its_coordinator_counts_no_time() -> None:
    """The next allocation does. If the spec has changed, this one does not go on."""
    plan = replace(PLAN, recovery=replace(PLAN.recovery, max_duration=60.0))
    before, changed = hashes_of(PLAN), (Changed("recovery.max_duration", None, "60s"),)
    assert before["slurm.json"] != hashes_of(plan)["slurm.json"]
    now = Submitted("running", "1", before)
    for other in ((), (Changed("env.A", "1", "2"),)):
        assert slurm_steps.steps(plan, now, other, fresh=False, recreate=False) == ()
    (step,) = slurm_steps.steps(plan, now, changed, fresh=False, recreate=False)
    assert (step.kind, step.target) == ("replace", "allocation")


SECRET = Changed("secrets.TOKEN", "•", "•", generation=True)
ANOTHER = "secrets.TOKEN: another value, which is not shown"


@pytest.mark.parametrize(
    ("phase", "wanted"),
    [
        ("running", [f"change files: {ANOTHER}", f"generation 1: {ANOTHER}"]),
        ("pending", [f"replace allocation: {ANOTHER}"]),
        ("succeeded", [f"create allocation: {ANOTHER}"]),
    ],
)
def test_another_value_of_a_secret_is_sent_and_a_generation_begins_with_it(phase: Phase, wanted: list[str]) -> None:
    """Its file has no hash among those that are sent."""
    now = Submitted(phase, "1", SENT)
    other = Changed("recovery.max_restarts", 3, 5)
    assert [*map(str, slurm_steps.steps(PLAN, now, (SECRET,), fresh=False, recreate=False))] == wanted
    assert slurm_steps.steps(PLAN, now, (other,), fresh=False, recreate=False) == ()


class PlayedJob(SlurmJob):
    """A job with the files of an earlier spec, which runs, or stands as `phase` says."""

    def __init__(self, phase: Phase = "running", **sent: Any) -> None:
        self.phase = phase
        self.kept: dict[str, Any] = {**SENT, **sent}
        self.sending: str | None = None  # what goes wrong as files are sent
        self.ordering: str | None = None  # the same as the generation is begun
        self.submitting: str | None = None  # the same as the job is submitted
        self.looks: list[SlurmLook] = []  # what is seen of it in Slurm, one look after the other
        self.submitted = 0
        self.ordered: list[dict[str, Any]] = []  # what orders say
        self.name, self.work = "login", "/shared/tiny"
        self.plan, self.tell, self.interval = PLAN, print, 0.0
        handle: Any = self
        self.login = self.files = handle
        super().__init__(handle)

    def sent(self) -> dict[str, Any]:
        return self.kept

    def begins_runs(self) -> bool:
        return True

    def write(self, path: str, content: bytes) -> None:
        assert path == "run/sent.json"
        self.kept = json.loads(content)

    def send(self, *_: Any, **__: Any) -> None:
        """Play that files are sent."""
        if self.sending:
            raise HostError("login", "unreachable", self.sending)

    def look_anew(self) -> SlurmLook:
        return self.looks.pop(0) if self.looks else SlurmLook("7", 0.0)

    def _order(self, command: str, **more: object) -> None:
        if self.ordering:
            raise HostError("login", "slurm-silent", self.ordering)
        self.ordered.append(more)

    def _submit(self, plan: Plan, *, fresh: bool = False, sent: Any = None) -> None:
        if self.submitting:
            raise HostError("login", "slurm-silent", self.submitting)
        assert not self.looks, "the next job was submitted before the last one had gone"
        self.kept, self.phase, self.submitted = sent, "pending", self.submitted + 1

    def up(self) -> list[str]:  # type: ignore[override]
        """Do what `up` would do now, and return it."""
        observed = Observed(NOTHING, (), None, verdict=(self.phase, None))
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


@pytest.mark.parametrize(("where", "ordered"), [("sending", [{}]), ("ordering", [{"sent": SENT}])])
@pytest.mark.parametrize("phase", ["running", "failed"])
def test_a_restart_does_what_a_cut_off_up_has_left_if_all_has_arrived(
    where: str, ordered: list[Any], phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next `up` would begin another generation for nothing. Nobody knows what has arrived if sending was cut off."""
    for name in ("locked", "refuse_owner", "step_teller", "leave_teller", "tell_now"):
        monkeypatch.setattr(in_allocation, name, MagicMock())
    job = PlayedJob(**{"launch.json": "?"})
    setattr(job, where, "the connection is lost")
    with pytest.raises(HostError):
        job.up()
    job.sending = job.ordering = None
    left, done = dict(job.kept), where == "ordering"
    handle: Any = job
    handle.observe = lambda: Observed(NOTHING, (), None, verdict=(phase, None))
    handle.events = handle.job = MagicMock()
    job.restart(None, MagicMock(), MagicMock())
    if phase == "running":
        assert (job.ordered, job.kept) == (ordered, SENT if done else left)
    else:
        assert (job.submitted, job.kept) == (1, SENT if done else None)


@pytest.mark.parametrize("where", ["sending", "ordering"])
def test_a_scaled_job_begins_with_what_a_cut_off_up_has_left_if_all_has_arrived(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator of an earlier version may begin no generation now, so only the coordinator writes it down."""
    for name in ("locked", "refuse_owner", "step_teller", "_refuse_size"):
        monkeypatch.setattr(in_allocation, name, MagicMock())
    job = PlayedJob(**{"launch.json": "?"})
    setattr(job, where, "the connection is lost")
    with pytest.raises(HostError):
        job.up()
    job.ordering, left = None, dict(job.kept)
    handle: Any = job
    handle.observe = lambda: Observed(NOTHING, (), None, verdict=("running", None))
    job.scale(MagicMock(count=1), MagicMock())
    assert (job.ordered, job.kept) == ([{"nodes": 1, **({"sent": SENT} if where == "ordering" else {})}], left)


def test_an_order_says_what_was_sent_for_it() -> None:
    """The coordinator may follow it once nobody waits for that any more."""
    job = PlayedJob(**{"launch.json": "?"})
    job.up()
    assert job.ordered == [{"fresh": False, "sent": SENT}]


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


@pytest.mark.parametrize("where", ["sending", "submitting"])
def test_a_change_of_a_job_that_has_succeeded_is_submitted_after_an_up_that_was_cut_off(where: str) -> None:
    """Otherwise it would count as the job that has succeeded."""
    job = PlayedJob("succeeded", **{"launch.json": "?"})
    setattr(job, where, "the connection is lost")
    with pytest.raises(HostError):
        job.up()
    setattr(job, where, None)
    assert job.up() == ["create allocation: launch.json differs"]
    assert (job.up(), job.kept, job.submitted) == ([], SENT, 1)


def test_of_a_job_that_has_succeeded_what_a_cut_off_up_has_sent_is_replaced() -> None:
    assert steps("succeeded", due=True) == [
        "create allocation: an `up` was cut off before a generation began with what it sent"
    ]


def test_a_job_is_submitted_again_only_once_slurm_has_let_go_of_the_one_that_has_ended() -> None:
    """Until then it would take that for the job, and run nothing."""
    result = {PurePosixPath("run/allocation.json"): {"state": "ended", "result": {"phase": "failed", "at": 0.0}}}
    job = PlayedJob("failed")
    job.looks = [SlurmLook("7", 0.0, QueueEntry("7", state), files=result) for state in ("RUNNING", "COMPLETING")]
    job.looks.append(SlurmLook("7", 0.0, QueueEntry("7", "COMPLETED"), files=result))
    assert job.up() == ["create allocation: it has failed"]
    assert job.submitted == 1


def test_a_job_that_slurm_does_not_let_go_of_is_not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "CANCEL_TIMEOUT", -1.0)
    job = PlayedJob("failed")
    result = {PurePosixPath("run/allocation.json"): {"state": "ended", "result": {"phase": "failed", "at": 0.0}}}
    job.looks = [SlurmLook("7", 0.0, QueueEntry("7", "COMPLETING"), files=result)]
    with pytest.raises(HostError, match="job 7 has ended, and Slurm still has it as COMPLETING: nothing was submitted"):
        job.up()


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
def test_a_fresh_run_takes_the_allocation_that_runs(phase: Phase, wanted: list[str]) -> None:
    assert steps(phase, fresh=True) == wanted


def test_a_fresh_run_needs_another_allocation_where_its_coordinator_cannot_begin_one() -> None:
    """That of an earlier version, or of a change that only Slurm can make."""
    assert steps("running", fresh=True, begins_runs=False) == [f"replace allocation: {FRESH}"]
    assert steps("running", fresh=True, **{"job.sbatch": "?"}) == [f"replace allocation: {FRESH}"]


def test_a_fresh_run_brings_changed_files() -> None:
    assert steps("running", fresh=True, **{"launch.json": "?"}) == [
        "change files: launch.json differs",
        f"generation 1: {FRESH}",
    ]


@pytest.mark.parametrize("phase", ["running", "pending", "succeeded"])
def test_without_a_change_there_is_nothing_to_do(phase: Phase) -> None:
    assert steps(phase) == []


def test_an_order_that_is_not_followed_in_time_is_no_job_that_was_not_changed() -> None:
    """The allocation has it, and follows it as soon as it can."""

    def order(job_id: str, command: str) -> None:
        raise HostError("login", "slurm-order" if command == "restart" else "slurm-silent", f"{command} of {job_id}")

    entry = SimpleNamespace(runs=True, job_id="7")
    handle: Any = SimpleNamespace(look_anew=lambda: SimpleNamespace(entry=entry), order=order)
    with pytest.raises(PartlyDone, match="restart of 7"):
        SlurmJob(handle)._order("restart")
    with pytest.raises(HostError, match="scale of 7"):
        SlurmJob(handle)._order("scale")


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `up` begin with its steps at once."""
    for name in (
        "secrets_of",
        "channels_of",
        "warn_of_another_spec",
        "source_of",
        "record_of",
        "tell_up",
        "step_teller",
    ):
        monkeypatch.setattr(in_allocation, name, MagicMock())
    for module in (background, kept_channels):
        monkeypatch.setattr(module, "end_supervisor" if module is background else "keep_channels", MagicMock())


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(("kind", "error"), [("replace", PartlyDone), ("create", HostsFailed)])
def test_an_up_that_is_cut_off_has_changed_a_job_whose_allocation_it_has_ended(
    kind: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SlurmJob(MagicMock())
    change = SimpleNamespace(steps=(Step(kind, "allocation", "why"),), changed=())
    monkeypatch.setattr(SlurmJob, "change", lambda *_: change)
    monkeypatch.setattr(SlurmJob, "_do", MagicMock(side_effect=HostError("login", "slurm-silent", "no answer")))
    with pytest.raises(error, match="no answer"):
        job._apply(MagicMock(), UpOptions(), MagicMock())


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(("cut_off", "error"), [("_order", HostsFailed), ("_note_sent", PartlyDone)])
def test_an_up_that_is_cut_off_has_changed_a_job_that_has_got_its_order(
    cut_off: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SlurmJob(MagicMock())
    change = SimpleNamespace(steps=(Step("generation", "2", "why"),), changed=())
    monkeypatch.setattr(SlurmJob, "change", lambda *_: change)
    monkeypatch.setattr(in_allocation, "hashes_of", MagicMock())
    monkeypatch.setattr(SlurmJob, "_order", MagicMock())
    monkeypatch.setattr(SlurmJob, cut_off, MagicMock(side_effect=HostError("login", "lost", "no answer")))
    with pytest.raises(error, match="no answer"):
        job._apply(MagicMock(), UpOptions(), MagicMock())


@pytest.mark.usefixtures("prepared")
def test_values_of_secrets_are_the_jobs_once_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An `up` that is killed before leaves it to the next one to send them."""
    told: list[object] = []
    monkeypatch.setattr(in_allocation, "source_of", lambda compiled, plan, secrets: told.append(dict(secrets)))
    monkeypatch.setattr(in_allocation, "secrets_of", lambda compiled: {"TOKEN": "b"})
    monkeypatch.setattr(SlurmJob, "_do", lambda self, step, secrets, fresh: told.append(step.kind))
    job = SlurmJob(MagicMock())
    steps = (Step("change", "files", ANOTHER), Step("generation", "2", ANOTHER))
    monkeypatch.setattr(SlurmJob, "change", lambda *_: SimpleNamespace(steps=steps, changed=(SECRET,)))
    job._apply(MagicMock(), UpOptions(), MagicMock())
    assert told == [{}, "change", {"TOKEN": "b"}, "generation"]


def test_a_secret_with_another_value_is_among_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    Path("job.yaml").write_text("name: resnet\nframework: torch\nmodule: train\nsecrets: [TOKEN]\n")
    compiled, job = compiled_of(check("job.yaml", None, Where("slurm"))), job_of_name("resnet")
    job.create()
    job.remember({"target": "slurm"}, PLAN, source_of(compiled, PLAN, {"TOKEN": "a"}))
    allocation: Any = SimpleNamespace(job=job)
    for value, wanted in (("a", []), ("b", [ANOTHER])):
        monkeypatch.setenv("TOKEN", value)
        assert [str(one) for one in in_allocation._changed_keys(compiled, allocation)] == wanted
