"""The door for programs: docs/python-api.md as it is written, and what it promises of its names."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import jobctl.jobspec
from jobctl.jobspec import operations
from jobctl.jobspec.deploy.store.jobdir import JobDir, job_dir

PAGE = (Path(__file__).parents[2] / "docs/python-api.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the code of the page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


COMPILING, ON_HOSTS, RUNNING, REPORTING = blocks("python")


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the page's spec, and a script that trains nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    (spec,) = blocks("yaml")
    Path("job.yaml").write_text(spec)
    Path("count.py").write_text("print(1, 2, 3)\n")
    Path("hosts.txt").write_text("alpha\nbeta\n")
    return tmp_path


def test_a_spec_is_compiled_and_its_plan_looked_at(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(COMPILING, names)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "0 127.0.0.2 1 ('python3', 'count.py')"
    assert last.startswith("['control.json', 'launcher.py', ")
    exec(ON_HOSTS, names)
    assert capsys.readouterr().out == "['alpha', 'beta']\n"
    assert not (notebook / "state").exists()


def test_a_job_is_brought_up_waited_for_and_taken_down(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(RUNNING, names)
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "succeeded [0, 0]"
    assert told[0].startswith("start node 0 on localhost: ")
    exec(REPORTING, names)
    assert capsys.readouterr().out.splitlines()[0].startswith("step: start node 0 on localhost: ")
    assert job_dir(notebook / "state", "count").job_record() is None  # `down` has forgotten it


def test_a_spec_with_errors_tells_all_of_them(notebook: Path) -> None:
    Path("job.yaml").write_text("name: count\nframework: torch\nnodez: 2\n")
    with pytest.raises(operations.InvalidSpec) as caught:
        jobctl.jobspec.load("job.yaml")
    assert [found.code for found in caught.value.diagnostics] == ["nothing-to-run", "unknown-key"]
    assert str(caught.value).splitlines()[1].startswith("job.yaml:3: unknown key `nodez`")


def test_a_job_that_is_not_known_or_goes_on_is_a_typed_error(notebook: Path) -> None:
    with pytest.raises(operations.Refused, match="no job `nobody` is known here"):
        operations.status("nobody")
    Path("count.py").write_text("import time\ntime.sleep(600)\n")
    job = jobctl.jobspec.load("job.yaml")
    operations.up(job, operations.UpOptions(supervise=False))
    with pytest.raises(operations.TimedOut, match=r"job `count` still running after 0\.1 s"):
        operations.wait(job, timeout=0.1)
    assert operations.down(job, operations.JobRequest(grace=0.0)).failed == {}


def test_a_job_as_it_was_loaded_is_looked_for_where_its_spec_says(
    notebook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its file is: nothing is known of it here, but its spec names a login node."""
    from jobctl.jobspec.operations.resolve import running

    looked: list[tuple[Path, str]] = []

    def found_in_spec(spec: Path, directory: JobDir, reached: operations.Reached) -> None:
        looked.append((spec, directory.name))

    monkeypatch.setattr(running, "found_in_spec", found_in_spec)
    job = jobctl.jobspec.load("job.yaml", overrides=["name=other"])
    assert [operations.down(one).anything for one in (job, "job.yaml", "job.yaml", job)] == [False] * 4
    operations.status(job)
    assert looked == [(Path("job.yaml"), name) for name in ("other", "count", "count", "other", "other")]


def test_a_spec_that_came_by_a_descriptor_is_read_once(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobctl.jobspec.operations.resolve import running

    monkeypatch.setattr(running, "found_in_spec", lambda *args: pytest.fail("reads it again"))
    job = replace(jobctl.jobspec.load("job.yaml"), path=Path("/dev/stdin"))
    assert not operations.down(job).anything


def test_a_target_that_does_not_exist_is_refused(notebook: Path) -> None:
    where: Any = {"target": "foo"}
    with pytest.raises(operations.Refused) as caught:
        jobctl.jobspec.load("job.yaml", operations.Where(**where))
    assert caught.value.message == "there is no target `foo`"
    assert caught.value.hint == "choose one of local, compose, ssh, kubernetes, slurm"


def test_no_job_is_started_without_its_env_file(notebook: Path) -> None:
    with Path("job.yaml").open("a") as spec:
        spec.write("env_file: missing.env\n")
    job = jobctl.jobspec.load("job.yaml")
    with pytest.raises(
        operations.Refused, match=r"`env_file` of .*: there is no file `missing\.env`: nothing was started"
    ):
        operations.up(job)
    assert not (notebook / "state/jobs/count/job.json").exists()


def test_no_job_is_started_without_its_code(notebook: Path) -> None:
    """Nor is one that runs brought to an empty version of it, when its folder is not mounted."""
    with Path("job.yaml").open("a") as spec:
        spec.write("code: missing\n")
    job = jobctl.jobspec.load("job.yaml")
    with pytest.raises(operations.Refused, match=r"`code` of .*: there is no directory `missing`: nothing was changed"):
        operations.up(job)
    assert not (notebook / "state/jobs/count/job.json").exists()


def test_every_name_of_the_door_is_there_and_on_the_page() -> None:
    assert [name for name in operations.__all__ if getattr(operations, name, None) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'bring_up'"):
        operations.bring_up  # noqa: B018
    words = set(re.findall(r"\w+", PAGE))
    assert {*jobctl.jobspec.__all__, *operations.__all__} - words == set()


def test_the_door_is_cheap_and_its_functions_are_no_packages() -> None:
    code = (
        "import sys, jobctl.jobspec\n"
        "assert not [name for name in sys.modules if name.startswith('jobctl.jobspec.') and name.count('.') > 2]\n"
        "import jobctl.jobspec.operations\n"
        "print(sorted({'pydantic', 'yaml', 'jinja2', 'docker', 'fabric', 'typer'} & set(sys.modules)))\n"
        "import jobctl.jobspec.plan.types, jobctl.jobspec.render.artefact\n"
        "from jobctl.jobspec import plan, render\n"
        "print(callable(plan), callable(render))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True True"]
