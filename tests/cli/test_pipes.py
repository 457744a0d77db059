"""A spec that comes through a pipe: it gives what it holds once, and a command reads a spec more than once."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.operations.resolve.job import spec_path
from jobctl.jobspec.spec.load import load_spec, read_name


@pytest.mark.parametrize("command", ["validate", "plan", "render", "up --dry-run"])
def test_a_spec_comes_through_a_named_pipe(command: str, jobctl: Any) -> None:
    os.mkfifo("pipe")
    writing = threading.Thread(target=Path("pipe").write_text, args=(Path("job.yaml").read_text(),))
    writing.start()
    ran = jobctl(*command.split(), "pipe")
    writing.join(30)
    assert "error" not in ran.err


def test_paths_in_a_spec_of_an_open_file_are_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `jobctl up <(command)`: the folder of that file is `/dev/fd`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("NAME=small\n")
    reader, writer = os.pipe()
    os.write(writer, b"name: ${NAME}\nframework: torch\nmodule: train\n")
    os.close(writer)
    path = Path(f"/dev/fd/{reader}")
    assert read_name(path).name == "small"
    loaded = load_spec(path, environ={})
    os.close(reader)
    assert (loaded.spec is not None, loaded.directory) == (True, tmp_path)


def test_a_hyphen_is_the_standard_input() -> None:
    assert spec_path("-") == Path("/dev/stdin")


@pytest.mark.parametrize("named", ["-", "/dev/stdin"])
def test_hosts_come_from_the_standard_input(named: str, jobctl: Any) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"here are hosts\n")
    os.close(writer)
    own = os.dup(0)
    os.dup2(reader, 0)
    try:
        ran = jobctl("validate", "--hosts", named)
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(reader)
    assert " --> /dev/stdin:1:6" in ran.out


def test_the_standard_input_is_one_file(jobctl: Any) -> None:
    ran = jobctl("validate", "-", "--hosts", "-")
    assert (ran.code, ran.err.splitlines()) == (
        2,
        [
            "error: standard input cannot be both the spec and the hosts file",
            "hint: name a file for one of them",
        ],
    )


def test_hosts_that_came_through_a_pipe_are_not_read_from_another(jobctl: Any, tmp_path: Path) -> None:
    """What is there by now is the standard input of this command."""
    (tmp_path / "state" / "jobs" / "small").mkdir(parents=True)
    about = {"job": "small", "target": "compose", "spec": str(tmp_path / "job.yaml"), "hosts": "/dev/stdin"}
    (tmp_path / "state" / "jobs" / "small" / "job.json").write_text(json.dumps(about))
    reading = os.open(tmp_path / "job.yaml", os.O_RDONLY)
    own = os.dup(0)
    os.dup2(reading, 0)
    try:
        ran = jobctl("plan", "small")
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(reading)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: job `small` was started with /dev/stdin, which is gone")


def test_the_name_of_a_job_that_came_through_a_pipe_does_not_wait_for_another(jobctl: Any, tmp_path: Path) -> None:
    (tmp_path / "state" / "jobs" / "small").mkdir(parents=True)
    about = {"job": "small", "target": "local", "spec": "/dev/stdin"}
    (tmp_path / "state" / "jobs" / "small" / "job.json").write_text(json.dumps(about))
    ran = jobctl("plan", "small")
    assert (ran.code, ran.err.splitlines()) == (
        2,
        [
            "error: job `small` was started from /dev/stdin, which gave its spec once",
            "hint: name a spec file, or give it in the same way again",
        ],
    )
