"""Logs that are followed while the API server does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.pod_logs import PodLogs
from jobctl.jobspec.deploy.kubernetes.pods import Pod
from jobctl.jobspec.deploy.kubernetes.problems import Unreachable
from jobctl.jobspec.deploy.model.log_lines import LineSelection

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
