"""What the tool of a driver prints on a host, and one that hangs: nothing waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host import facts
from jobctl.jobspec.deploy.host.facts import Facts
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.sample import parse_sample
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import parse_hosts

Play = Callable[..., None]
PROCESS = "GPU-b, 77, /usr/bin/python3"


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return what makes a program of this machine."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def program(name: str, *lines: str) -> None:
        (tmp_path / name).write_text("\n".join(["#!/bin/sh", *lines]))
        (tmp_path / name).chmod(0o755)

    return program


@pytest.fixture
def hanging(play: Play, tmp_path: Path) -> Iterator[None]:
    """A tool that has printed something, with a child that nobody ends, which keeps its output open. Its time is short."""
    os.mkfifo(tmp_path / "over")
    play("nvidia-smi", "echo 0, GPU-a", "trap '' TERM", f"cat {tmp_path}/over &", f"cat {tmp_path}/over")
    play("timeout", "shift 3", 'exec /usr/bin/timeout -k 1 0.1 "$@"')
    yield
    os.close(os.open(tmp_path / "over", os.O_RDWR))


def told(tmp_path: Path) -> Facts:
    (host,) = parse_hosts(f"localhost dir={tmp_path}/work\n", "hosts.txt").hosts
    return facts.ask(HostJob(host, LocalTransport(), "job", "ssh"), "token", [], [])


def test_which_process_uses_which_gpu(play: Play, tmp_path: Path) -> None:
    play("nvidia-smi", f'case "$*" in *=index,*) printf "0, GPU-a\\n1, GPU-b\\n" ;; *) echo "{PROCESS}" ;; esac')
    host = told(tmp_path)
    assert (host.busy, host.values.get("hangs")) == ({1: "77 /usr/bin/python3"}, None)


def test_a_driver_that_fails_does_not_hang(play: Play, tmp_path: Path) -> None:
    play("nvidia-smi", "echo No devices were found", "exit 6")
    host = told(tmp_path)
    assert (host.busy, host.values.get("hangs")) == ({}, None)


@pytest.mark.usefixtures("hanging")
def test_a_host_whose_driver_hangs_answers(tmp_path: Path) -> None:
    host = told(tmp_path)
    assert (host.values["tools"], host.values.get("hangs")) == ("yes", "nvidia-smi")
    said = LocalTransport().run(SCRIPTS.argv("sample")).out.decode()
    assert (parse_sample(said).memory is not None, said.endswith("== end\n")) == (True, True)
