"""jobctl is upgraded, or removed, while its supervisor watches a job."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.transport import base, scripts
from jobctl.jobspec.operations.lifecycle import supervise as supervising
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.render import environment, launcher
from jobctl.jobspec.render.artefact import Artefact, render
from jobctl.jobspec.supervise import loop
from tests.render import plans


def is_gone(*about: object) -> NoReturn:
    raise FileNotFoundError(about)


def artefacts(target: str) -> list[Artefact]:
    plan = plans.plan(target=target)
    return list(render(plan, first_generation(plan)))


@pytest.mark.parametrize("target", ["local", "compose", "ssh"])
def test_a_restart_reads_no_file_of_jobctl_any_more(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a supervisor needs for a restart, it has read before it watches."""
    before = artefacts(target)
    for read in (environment.compose_template, environment.shell_template, launcher.launcher, scripts._text):
        read.cache_clear()

    class Restarts:
        """A supervisor that has something to do once the files are gone."""

        def __init__(self, *about: object) -> None:
            monkeypatch.setattr(environment, "_template", is_gone)
            monkeypatch.setattr(launcher, "files", is_gone)
            monkeypatch.setattr(scripts, "files", is_gone)

        def run(self, feed: object) -> str:
            assert artefacts(target) == before
            if target != "local":
                assert SCRIPTS.text("start")
                assert base.SCRIPTS.text("put")
            return "it has restarted the job"

    monkeypatch.setattr(loop, "Supervisor", Restarts)
    monkeypatch.setattr(loop, "is_over", lambda deployer: True)
    deployer = SimpleNamespace(job=JobDir(Path("jobs/demo")), plan=plans.plan(target=target), follow=nullcontext)
    assert supervising._watch(deployer, print) == "it has restarted the job"  # type: ignore[arg-type]
