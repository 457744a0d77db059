"""Commands that wait for a job: while the API server does not answer, and while another command makes the job anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.pod_logs import PodLogs
from jobctl.jobspec.deploy.kubernetes.pods import Pod
from jobctl.jobspec.deploy.kubernetes.problems import Unreachable
from jobctl.jobspec.deploy.model.log_lines import LineSelection
from jobctl.jobspec.deploy.store.lock import JobLock
from tests.kube.server import ApiServer
from tests.kube.world import World

AWAY = Unreachable("test", "the API server does not answer")


def followed(looks: Iterator[list[Pod] | Unreachable]) -> PodLogs:
    """Return the logs of pods as each look finds them."""

    def look() -> list[Pod]:
        found = next(looks)
        if isinstance(found, Unreachable):
            raise found
        return found

    api: Any = SimpleNamespace(name="test")
    return PodLogs(api, look, None, LineSelection(), None)


def test_a_server_that_is_away_for_a_while_ends_no_logs() -> None:
    logs = followed(iter([[], AWAY, AWAY, []]))
    told = [(list(logs.lines()), dict(logs.problems)) for _ in range(4)]
    assert told == [([], {}), ([], {"test": AWAY}), ([], {"test": AWAY}), ([], {})]


def test_logs_that_cannot_be_looked_for_at_first_are_an_error() -> None:
    with pytest.raises(Unreachable):
        list(followed(iter([AWAY])).lines())


def test_a_job_that_is_being_made_anew_has_not_ended(jobctl: Any, world: World, api: ApiServer, here: Path) -> None:
    jobctl("up", "--target", "kubernetes")
    with JobLock(here / "state" / "jobs" / "resnet" / "lock").hold("restart"):
        api.delete("Job", "resnet")
        assert jobctl("wait", "resnet", "--timeout", "0.1").code == 124
    ran = jobctl("wait", "resnet")
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: job `resnet` stopped: its pods are being removed")
