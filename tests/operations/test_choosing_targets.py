"""Which target is meant: what options say, and what is recorded of a job."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.observed import Observed, Phase
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve import moves
from jobctl.jobspec.operations.resolve.job import AS_STARTED, Reached, Where
from jobctl.jobspec.operations.targets.choose import choose_target, target_of, where_recorded

HOSTS = Path("hosts.txt")


@pytest.mark.parametrize(
    ("where", "target"),
    [
        (Where(), "local"),
        (Where(hosts=HOSTS), "compose"),
        (Where(hosts=HOSTS, target="ssh"), "ssh"),
        (Where(context="prod"), "kubernetes"),
        (Where(target="slurm"), "slurm"),
    ],
)
def test_options_choose_a_target(where: Where, target: str) -> None:
    assert choose_target(where) == target


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            Where(target="slurm", namespace="team"),
            "`--context` and `--namespace` choose a cluster, and target `slurm` has",
        ),
        (Where(hosts=HOSTS, target="local"), "target `local` is this machine: it takes no hosts file"),
        (Where(hosts=HOSTS, target="kubernetes"), "target `kubernetes` takes no hosts file: the cluster chooses"),
        (Where(hosts=HOSTS, target="slurm"), "target `slurm` takes no hosts file: Slurm chooses"),
        (Where(on="gpu01"), "`--on` and `--exclude` choose from a hosts file"),
    ],
)
def test_options_that_disagree_are_refused(where: Where, message: str) -> None:
    with pytest.raises(Refused) as refused:
        choose_target(where)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("where", "recorded", "target"),
    [
        (Where(), "kubernetes", "kubernetes"),
        (Where(context="prod"), "kubernetes", "kubernetes"),
        (Where(), "slurm", "slurm"),
        (Where(context="prod"), "slurm", None),
        (Where(target="compose"), "slurm", "compose"),
        (Where(), "compose", None),
        (Where(), "local", None),
        (Where(hosts=HOSTS), "ssh", "ssh"),
        (Where(hosts=HOSTS, target="compose"), "ssh", "compose"),
        (Where(hosts=HOSTS), "slurm", None),
        (Where(hosts=HOSTS), "local", None),
    ],
)
def test_a_job_that_is_up_keeps_its_target_where_options_allow_that(
    where: Where, recorded: str, target: str | None
) -> None:
    assert where_recorded(where, recorded).target == target


@pytest.mark.parametrize(
    ("about", "reached", "target"),
    [
        (None, AS_STARTED, "local"),
        ({"target": "ssh"}, AS_STARTED, "ssh"),
        ({"target": "slurm"}, Reached(context="prod"), "kubernetes"),
        ({"target": "slurm"}, Reached(hosts=HOSTS), "slurm"),
    ],
)
def test_a_job_is_looked_for_where_options_say_or_it_was_started(about: Any, reached: Reached, target: str) -> None:
    class Directory:
        def job_record(self) -> Any:
            return about

    directory: Any = Directory()
    assert target_of(directory, reached) == target


@pytest.mark.parametrize(("phase", "may_move"), [("running", False), ("failed", False), ("succeeded", True)])
def test_a_job_that_has_succeeded_moves_though_its_launchers_live_a_moment_more(
    phase: Phase, may_move: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do when `wait` has just ended. A job that has failed may have a process that cannot be killed."""
    nodes: Any = (SimpleNamespace(alive=True),)
    known = SimpleNamespace(name="small", job_record=lambda: {"target": "local"})
    played = SimpleNamespace(observe=lambda: Observed(NOTHING, nodes, None, verdict=(phase, None)))
    monkeypatch.setattr(moves, "job_of_name", lambda name: known)
    monkeypatch.setattr(moves, "deployer_of", lambda *_: played)
    compiled: Any = SimpleNamespace(spec=SimpleNamespace(name="small"), target="kubernetes", path=Path("job.yaml"))
    with nullcontext() if may_move else pytest.raises(Refused, match="is up on target `local`"):
        moves.refuse_move(compiled, AS_STARTED)
