"""What the shell offers: names of jobs, nodes and hosts, without anything that takes long to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobctl.completion import color_value, command_in
from jobctl.main import COMMANDS

Offer = Callable[[str], list[str]]


def keep(name: str, **about: Any) -> None:
    """Make the directory of a job of two nodes and an etcd."""
    root = Path("state/jobs") / name
    root.mkdir(parents=True)
    (root / "job.json").write_text(json.dumps({"target": "ssh", "spec": None, **about}))
    nodes = [{"index": 0, "role": "trainer"}, {"index": 1, "role": "scheduler"}]
    (root / "plan.json").write_text(json.dumps({"nodes": nodes, "services": [{"name": "etcd-0"}]}))


@pytest.fixture
def offer(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Return what bash offers for a line, in a folder with a job that was started from job.yaml, and another one."""
    keep("small", spec=str(Path("job.yaml").absolute()), reach={"hosts": [{"name": "gpu01"}, {"name": "gpu02"}]})
    keep("smaller")
    Path("hosts.txt").write_text("node[1-2]\n")
    Path("specs").mkdir()
    Path("specs/smoke.yml").touch()
    Path("specs/smoke.py").touch()

    def offered(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_JOBCTL_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        ran = jobctl()
        assert ran.err == ""
        return str(ran.out).split()

    return offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("jobctl status sm", ["small", "smaller"]),
        ("jobctl status j", ["job.yaml"]),
        ("jobctl status specs/", ["specs/smoke.yml"]),
        ("jobctl down small sm", ["smaller"]),
        ("jobctl prune s", ["small", "smaller"]),
        ("jobctl logs small --node ", ["0", "1", "scheduler", "etcd-0"]),
        ("jobctl exec --node e", ["etcd-0"]),  # of the job that was started from ./job.yaml
        ("jobctl exec nobody --node ", []),
        ("jobctl up --on g", ["gpu01", "gpu02"]),
        ("jobctl up --hosts hosts.txt --on ", ["node1", "node2"]),
        ("jobctl up --hosts hosts.txt --exclude node1,", ["node1,node2"]),
        ("jobctl up --hosts no-such --on ", []),
        ("jobctl pl", ["plan"]),
        ("jobctl status --wid", ["--wide"]),
        ("jobctl --color=always status sm", ["small", "smaller"]),
        ("jobctl up --color ", ["auto", "always", "never"]),
        ("jobctl up small --color al", ["always"]),
        ("jobctl --color n", ["never"]),
        ("jobctl init --framework ", ["torch", "paddle", "mindspore", "jax"]),
        ("jobctl up --target s", ["ssh", "slurm"]),
    ],
)
def test_what_is_offered(offer: Offer, line: str, offered: list[str]) -> None:
    assert offer(line) == offered


def test_zsh_offers_colours_too() -> None:
    assert color_value({"_TYPER_COMPLETE_ARGS": "jobctl up --color a"})["_TYPER_COMPLETE_ARGS"] == "jobctl --color a"
    assert color_value({"_TYPER_COMPLETE_ARGS": "jobctl exec job -- ls --color a"}) == {}


def test_what_cannot_be_read_offers_nothing(offer: Offer) -> None:
    """Whatever is wrong must not be printed into the line that is being typed."""
    Path("state/jobs/small/plan.json").write_text('{"nodes": [1]}')
    assert offer("jobctl logs small --node ") == []


@pytest.mark.parametrize(
    ("environ", "commands"),
    [
        ({"COMP_WORDS": "jobctl\nstatus\n", "COMP_CWORD": "2"}, ("status",)),
        ({"COMP_WORDS": "jobctl\nstatus", "COMP_CWORD": "1"}, COMMANDS),
        ({"COMP_WORDS": "jobctl\n--color", "COMP_CWORD": "2"}, COMMANDS),
        ({"_TYPER_COMPLETE_ARGS": "jobctl status "}, ("status",)),
        ({"_TYPER_COMPLETE_ARGS": "jobctl status"}, COMMANDS),
        ({"_TYPER_COMPLETE_ARGS": "jobctl status s"}, ("status",)),
        ({}, COMMANDS),
    ],
)
def test_only_the_command_in_the_line_is_read(environ: dict[str, str], commands: tuple[str, ...]) -> None:
    assert command_in(environ, COMMANDS) == commands


@pytest.mark.usefixtures("offer")
@pytest.mark.parametrize("words", [("status", "s"), ("logs", "small", "--node", ""), ("up", "--on", "")])
def test_completion_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from jobctl.main import main\n"
        "try:\n    main([])\nexcept SystemExit:\n    pass\n"
        # pydantic is not among them: Typer reads its own arguments with it.
        "heavy = {'fabric', 'docker', 'kubernetes', 'jinja2', 'yaml', 'rich', 'jobctl.jobspec.spec.model'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    line = {"COMP_WORDS": "\n".join(("jobctl", *words)), "COMP_CWORD": str(len(words))}
    environ = {**os.environ, **line, "_JOBCTL_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    *offered, heavy = done.stdout.splitlines()
    assert (bool(offered), heavy) == (True, "HEAVY []"), done.stdout
