"""`supervise` of a job that is recovered elsewhere: it tells what happens, and decides nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.operations.lifecycle import supervise as supervising

NOBODY = Observed(NOTHING, (), None)
SILENT = AllUnreachable({"login": HostError("login", "slurm-silent", "Slurm does not answer")}, NOBODY, "")


class PlayedJob:
    """A job in Slurm: each look finds the next of its phases, and tells of one event."""

    def __init__(self, *looks: Any) -> None:
        self.looks, self.pauses, self.gathered = list(looks), list[float](), 0
        told = iter([["before"], *[[f"event {n}"] for n in range(1, 9)]])
        events = SimpleNamespace(gather=self.gather, new=lambda: [{"message": text} for text in next(told)])
        plan = SimpleNamespace(target="slurm")
        job = SimpleNamespace(name="demo")
        self.handle = SimpleNamespace(plan=plan, job=job, observe=self.observe, interval=1.0, events=lambda: events)

    def gather(self) -> None:
        self.gathered += 1

    def observe(self) -> Observed:
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return replace(NOBODY, verdict=found)

    def deployer(self, command: str) -> Any:
        raise AssertionError("nothing is decided here")


def said(job: PlayedJob, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(supervising, "pause", job.pauses.append)
    supervising.supervise(job, lines.append)  # type: ignore[arg-type]
    return lines


def test_it_tells_until_the_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once what a job waits for, and everything that happens, also last."""
    waits = ("pending", "job 7 waits")
    job = PlayedJob(waits, waits, SILENT, ("running", None), ("failed", "rank 1 failed"))
    assert said(job, monkeypatch) == [
        "job `demo` is recovered inside its allocation: jobctl tells what happens there, and decides nothing",
        *("event 1", "pending: job 7 waits", "event 2", "event 3", "unknown: login: Slurm does not answer", "event 4"),
        *("event 5", "nothing left to supervise: the job has failed: rank 1 failed"),
    ]
    assert (job.pauses, job.gathered) == ([1.0, 1.0, supervising.UNHEARD, 1.0], 6)


@pytest.mark.parametrize(
    ("phase", "words"),
    [(("succeeded", None), "has succeeded"), (("stopped", "by the user"), "was stopped: by the user")],
)
def test_it_says_how_the_job_has_ended(phase: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(PlayedJob(phase), monkeypatch)[-1] == f"nothing left to supervise: the job {words}"
