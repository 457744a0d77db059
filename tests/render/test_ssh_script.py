"""The script of target `ssh`, run by hand: again, and over something else."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.artefact import render
from tests.render.plans import node, plan, with_container

# Says which spec the container has (if there is one), and notes what else it is asked.
DOCKER = """\
#!/bin/sh
case "$1 $2" in
"container inspect") [ -n "${RUNNING-}" ] && echo "$RUNNING" ;;
*) echo "$@" ;;
esac
"""


def script(wanted: Plan) -> str:
    return list(render(wanted, first_generation(wanted)))[2].content.decode()


def run(text: str, directory: Path, running: str) -> subprocess.CompletedProcess[str]:
    (directory / "docker").write_text(DOCKER)
    (directory / "docker").chmod(0o755)
    (directory / "node-0.sh").write_text(text)
    environ = {"PATH": f"{directory}:{os.environ['PATH']}", "RUNNING": running}
    return subprocess.run(["sh", "node-0.sh"], cwd=directory, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def text() -> str:
    return script(plan(target="ssh"))


def spec_of(text: str) -> str:
    (found,) = re.findall(r"^spec=(.*)$", text, re.MULTILINE)
    return str(found)


def test_started_where_nothing_is(text: str, tmp_path: Path) -> None:
    done = run(text, tmp_path, "")
    assert done.stdout.startswith(
        f"run --detach --label jobctl.version=0.1.0 --label jobctl.spec={spec_of(text)} --name jobctl-resnet-0 "
    )
    assert (tmp_path / "node-0").is_dir()


def test_started_again_where_it_is(text: str, tmp_path: Path) -> None:
    done = run(text, tmp_path, spec_of(text))
    assert (done.returncode, done.stdout, done.stderr) == (0, "start -- jobctl-resnet-0\n", "")


@pytest.mark.parametrize("running", ["0123", "<no value>"])
def test_something_else_is_left_alone(running: str, text: str, tmp_path: Path) -> None:
    done = run(text, tmp_path, running)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        "container jobctl-resnet-0 runs something else; remove it first: docker rm --force jobctl-resnet-0\n",
    )


def test_self_is_who_runs_it(tmp_path: Path) -> None:
    done = run(script(plan(with_container(node(), user="self"), target="ssh")), tmp_path, "")
    assert f" --user {os.getuid()}:{os.getgid()} " in done.stdout
