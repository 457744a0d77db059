"""Much code that hosts hand on to each other: on hosts that this machine plays."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import code_spread
from jobctl.jobspec.deploy.host.code_spread import spread_code
from jobctl.jobspec.deploy.host.send_code import pack_code
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Code
from tests.render.plans import plan as made_plan

HOSTS = ("h1", "h2", "h3")


class Remote(LocalTransport):
    """A host of its own, as far as code can see."""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(code_spread, "LocalTransport", type("Local", (), {}))
    monkeypatch.setattr(code_spread, "MUCH", 3_000_000)
    root = tmp_path / "src"
    root.mkdir()
    (root / "train.py").write_text("print(1)\n")
    (root / "weights").write_bytes(os.urandom(5_000_000))
    told: list[str] = []

    def job(name: str) -> Any:
        work, host = tmp_path / name, SimpleNamespace(name=name, address="127.0.0.1")
        return SimpleNamespace(host=host, transport=Remote(name), tell=told.append, work=work, own=work, told=told)

    return {name: job(name) for name in HOSTS}


def packed(tmp_path: Path) -> Any:
    version = str(sum((tmp_path / "src" / name).stat().st_mtime_ns for name in ("train.py", "weights")))
    code = replace(Code(str(tmp_path / "src"), "/workspace", ()), version=version)
    package = pack_code(replace(made_plan(), target="compose", code=code))
    assert package is not None
    return package


def contents(tmp_path: Path, host: str, version: str) -> dict[str, bytes]:
    top = tmp_path / host / "code" / version
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_much_code_goes_from_host_to_host(tmp_path: Path, jobs: dict[str, Any]) -> None:
    package = packed(tmp_path)
    assert spread_code(package, jobs.values()) == {}
    wanted = {path.name: path.read_bytes() for path in (tmp_path / "src").iterdir()}
    assert [contents(tmp_path, host, package.code.version) for host in HOSTS] == [wanted] * 3
    assert not any((tmp_path / host / "arriving").exists() for host in HOSTS)
    assert [package.look(job) for job in jobs.values()] == [None] * 3


def test_files_that_all_hosts_have_do_not_travel(tmp_path: Path, jobs: dict[str, Any]) -> None:
    first = packed(tmp_path)
    spread_code(first, jobs.values())
    (tmp_path / "src" / "new").write_bytes(os.urandom(4_000_000))
    (tmp_path / "src" / "train.py").write_text("print(2)\n")
    second = packed(tmp_path)
    there = [second.look(job) for job in jobs.values()]
    assert [seen.same for seen in there if seen] == [frozenset({b"weights"})] * 3
    spread_code(second, jobs.values())
    wanted = {path.name: path.read_bytes() for path in (tmp_path / "src").iterdir()}
    assert [contents(tmp_path, host, second.code.version) for host in HOSTS] == [wanted] * 3


def test_little_code_is_sent_to_each_host_by_itself(tmp_path: Path, jobs: dict[str, Any]) -> None:
    spread_code(packed(tmp_path), jobs.values())
    (tmp_path / "src" / "train.py").write_text("print(3)\n")
    package = packed(tmp_path)
    there = spread_code(package, jobs.values())
    assert all(package.look(job) is not None for job in jobs.values())
    for name, job in jobs.items():
        package.send(job, there[name])
        assert contents(tmp_path, name, package.code.version)["train.py"] == b"print(3)\n"
