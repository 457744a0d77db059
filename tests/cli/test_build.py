"""Specs with `build`: what is planned, what is refused before anything is built, and what `plan` says."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl import jobspec
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.operations.errors import HostsFailed, NotYours, Refused
from jobctl.jobspec.operations.lifecycle import prepare
from jobctl.jobspec.operations.lifecycle.base import JobRequest
from jobctl.jobspec.operations.reporter import SILENT
from jobctl.jobspec.operations.resolve import build as resolve_build
from jobctl.jobspec.operations.resolve.drift import changed_image
from jobctl.jobspec.operations.resolve.job import Compiled, Where
from jobctl.jobspec.operations.resolve.planning import context_of
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.spec.load import load_text

SPEC = """\
name: demo
framework: torch
module: train
build: .
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "Dockerfile").write_text("FROM base:1\nCOPY . /\n")
    (tmp_path / "hosts.txt").write_text("h1\nh2 spare\n")
    return tmp_path


def compiled(folder: Path, text: str = SPEC, target: str = "compose") -> Compiled:
    (folder / "job.yaml").write_text(text)
    where = Where(target, folder / "hosts.txt" if target in ("compose", "ssh") else None)  # type: ignore[arg-type]
    return jobspec.load(folder / "job.yaml", where)


def images(plan: Plan) -> set[tuple[str, str]]:
    return {(node.container.image, node.container.pull) for node in plan.nodes}


def test_no_registry_is_asked_for_what_is_built(folder: Path) -> None:
    plan = jobspec.plan(compiled(folder))
    ((image, pull),) = images(plan)
    assert (image.partition(":")[0], pull) == ("demo", "never")
    assert plan.build is not None
    assert (plan.build.image, plan.build.context) == (image, str(folder))
    assert images(jobspec.plan(compiled(folder, f"image: team/train:1\n{SPEC}", "ssh"))) == {
        (image.replace("demo:", "team/train:1-"), "never")
    }


def test_another_line_of_the_spec_is_no_other_image(folder: Path) -> None:
    before = images(jobspec.plan(compiled(folder)))
    assert images(jobspec.plan(compiled(folder, f"{SPEC}# a word\n"))) == before
    (folder / "Dockerfile").write_text("FROM base:2\nCOPY . /\n")
    assert images(jobspec.plan(compiled(folder))) != before


def test_the_supervisor_plans_with_the_image_that_up_built(folder: Path) -> None:
    job = compiled(folder)
    assert {(asdict(context_of(job))["image"], "never")} == images(jobspec.plan(job))


@pytest.mark.parametrize("target", ["local", "kubernetes"])
def test_elsewhere_nothing_is_built(folder: Path, target: str) -> None:
    (folder / "Dockerfile").unlink()
    plan = jobspec.plan(compiled(folder, f"image: team/train:1\npull: always\n{SPEC}", target))
    assert plan.build is None
    assert images(plan) == {("" if target == "local" else "team/train:1", "always")}


def test_without_a_dockerfile_nothing_can_be_planned(folder: Path) -> None:
    (folder / "Dockerfile").unlink()
    with pytest.raises(Refused, match="cannot read the Dockerfile"):
        jobspec.plan(compiled(folder))


def test_arguments_come_from_the_environment_as_in_compose() -> None:
    text = f"{SPEC.replace('.', '{args: [A=1, B, C, D=x=y]}')}"
    loaded = load_text(Path("job.yaml"), text, environ={"B": "2"})
    assert loaded.spec is not None
    assert loaded.spec.build is not None
    assert loaded.spec.build.args == {"A": "1", "B": "2", "D": "x=y"}
    assert [one.message for one in loaded.diagnostics if one.code == "unset-variable"] == [
        "`C` is not set here, so the build does not get it"
    ]


class PreparedJob:
    """A deployer of a job whose containers are somebody's, which counts builds."""

    def __init__(self, owners: set[str]) -> None:
        self.job, self.failures = SimpleNamespace(name="demo"), dict[str, HostError]()
        self.observe = lambda: SimpleNamespace(owners=owners)
        self.owners = lambda observed: observed.owners
        self.built = 0

    def build(self, plan: Plan, say: Any) -> None:
        self.built += 1
        raise HostError("h1", "build-failed", "cannot build", "a hint")


def test_what_belongs_to_somebody_else_is_refused_before_the_build(folder: Path) -> None:
    job = compiled(folder)
    deployer: Any = PreparedJob({"somebody@else"})
    planned: Any = SimpleNamespace(
        plan=jobspec.plan(job), compiled=job, job=SimpleNamespace(deployer=lambda _: deployer)
    )
    with pytest.raises(NotYours):
        prepare.prepare(planned, JobRequest(), SILENT, check=False)
    assert deployer.built == 0
    deployer = PreparedJob(set())
    with pytest.raises(HostsFailed, match="cannot build; nothing was changed") as failed:
        prepare.prepare(planned, JobRequest(), SILENT, check=False)
    assert (failed.value.exit_code, failed.value.kind, failed.value.hint) == (3, "build-failed", "a hint")


def test_plan_names_the_old_and_the_new_image(folder: Path) -> None:
    plan = jobspec.plan(compiled(folder))
    assert plan.build is not None
    now = plan.build.image

    def changes(before: str | None) -> list[str]:
        source = {"context": {"image": before}} if before else {"context": {}}
        job = SimpleNamespace(source=lambda: source)
        deployer: Any = SimpleNamespace(job=job, ids=lambda plan: {0: "a"})
        return [one.line for one in changed_image(plan, deployer)]

    assert changes("demo:old") == [f"build: demo:old → {now}: restarts node 0"]
    assert changes(now) == changes(None) == []


def test_private_files_are_named(folder: Path) -> None:
    (folder / ".env").write_text("TOKEN=1\n")
    said: list[str] = []
    reporter: Any = SimpleNamespace(say=said.append)
    resolve_build.say_not_built(compiled(folder), reporter)
    assert said == ["not in the build: .env (an env file); a line such as `!NAME` in .dockerignore takes a file back"]
