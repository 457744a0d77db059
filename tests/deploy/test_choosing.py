"""The next generation: a meeting of its own, at ports that are free, with the checkpoints of its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.apply.generations import choose_generation
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.plan.generation import FIRST_PORT, PORTS, Generation
from jobctl.jobspec.plan.types import Checkpoint, Plan, Rendezvous

from .test_executor import TWO

KEEPS = replace(TWO, checkpoint=Checkpoint("/ckpt", True, 2))


def choose(
    plan: Plan, last: Generation | None = None, free: Callable[[str, int], bool] = lambda host, port: True
) -> Generation:
    return choose_generation(plan, last, 5.0, plan.nodes, free, "h0", {0: 7000})


def test_each_generation_has_a_meeting_of_its_own() -> None:
    first, again = choose(TWO), choose(TWO)
    second = choose(TWO, first)
    assert len({first.rendezvous.id, again.rendezvous.id, second.rendezvous.id}) == 3
    assert (first.number, second.number, second.grace) == (1, 2, 5.0)
    assert [member.port for member in first.members] == [7000, None]


def test_a_port_that_is_taken_is_not_chosen() -> None:
    first = choose(TWO).rendezvous.port
    asked: list[str] = []

    def free(host: str, port: int) -> bool:
        asked.append(host)
        return port != first

    other = choose(TWO, free=free).rendezvous.port
    assert other != first
    assert FIRST_PORT <= other < FIRST_PORT + PORTS
    assert set(asked) == {"h0"}  # where all meet


def test_a_port_that_the_spec_names_is_taken_or_an_error() -> None:
    plan = replace(TWO, rendezvous=Rendezvous(29500, 600.0))
    assert choose(plan).rendezvous.port == 29500
    with pytest.raises(DeployError, match=r"port 29500 of `rendezvous.port` is taken on h0"):
        choose(plan, free=lambda host, port: False)
    with pytest.raises(DeployError, match="no free port"):
        choose(TWO, free=lambda host, port: False)


def test_a_fresh_run_goes_on_in_its_folder_and_another_one_in_the_plans() -> None:
    first = choose(KEEPS)
    assert first.checkpoint_dir == "/ckpt"
    fresh = replace(first, checkpoint_dir="/ckpt/fresh-1")
    assert choose(KEEPS, fresh).checkpoint_dir == "/ckpt/fresh-1"
    moved = replace(KEEPS, checkpoint=Checkpoint("/ckpt2", True, 2))
    assert choose(moved, fresh).checkpoint_dir == "/ckpt2"
