"""What an engine says of containers that end by themselves meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from docker.errors import APIError

from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.errors import HostError

ENDED = "cannot stop container: f37: Container f37 is not running"  # Docker Engine 20.10, with the status 500


class Refusing:
    """An engine, and its client, that stops no container."""

    def __init__(self, words: str) -> None:
        self.words = words

    @contextmanager
    def asked(self) -> Iterator[Any]:
        try:
            yield self
        except APIError as error:
            raise HostError("h1", "engine-failed", str(error)) from error

    def stop(self, container: str, timeout: int) -> None:
        raise APIError(self.words)


def stopped(words: str) -> None:
    engine: Any = Refusing(words)
    running = SeenContainer(0, "node", "f37", running=True, artefact=None, owner=None)
    Containers(engine, "job").stop([running], 1.0)


def test_a_container_that_ends_as_it_is_stopped_has_stopped() -> None:
    stopped(ENDED)


def test_an_engine_that_refuses_to_stop_one_says_why() -> None:
    with pytest.raises(HostError, match="permission denied"):
        stopped("cannot stop container: f37: permission denied")
