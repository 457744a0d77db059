"""What a host gets is on its disk before it has its name: afterwards jobctl takes it for whole, and does not send it again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.sending.send_code import pack_code
from jobctl.jobspec.deploy.store.code import code_hash
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.render.artefact import Artefact
from jobctl.jobspec.spec.hosts import Host
from tests.render.plans import plan

from .sent_data import data_folder, host_of_data, package, there


def send_code(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    planned = replace(plan(), target="compose", code=Code(str(tmp_path / "src"), "/workspace", ()))
    sent = pack_code(replace(planned, code=replace(planned.code, version=code_hash(planned))))  # type: ignore[type-var]
    assert sent is not None
    host: Any = SimpleNamespace(work=tmp_path / "job", transport=LocalTransport())
    sent.send(host)
    return Path(host.work, "code", sent.code.version or "")


def send_data(tmp_path: Path) -> Path:
    sent, host = package(data_folder(tmp_path)), host_of_data(tmp_path)
    sent.send(host)
    return there(host, sent)


def send_launcher(tmp_path: Path) -> Path:
    job = HostJob(Host("h1", dir=str(tmp_path / "jobctl")), LocalTransport("h1"), "job", "ssh")
    job.send([Artefact("launcher.py", b"print(2)\n", 0o644)], [])
    return Path(job.work, "launcher.py")


@pytest.mark.parametrize("send", [send_code, send_data, send_launcher])
def test_what_has_its_name_on_a_host_is_on_its_disk(
    send: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, calls = tmp_path / "bin" / "sync", tmp_path / "calls"
    sync.parent.mkdir()
    told = f'[ "$1" != -f ] || shift; find "$@" -type f -print0 >> {calls}; find {tmp_path} >> {calls}.then'
    sync.write_text(f"#!/bin/sh\n{told}\n")
    sync.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sync.parent}:{os.environ['PATH']}")
    made = send(tmp_path)
    names = {path.name for path in made.rglob("*") if path.is_file() and not path.is_symlink()} or {made.name}
    assert names <= {Path(line).name for line in calls.read_text().split("\0")}
    assert str(made) not in Path(f"{calls}.then").read_text().splitlines()
