"""Much code that hosts hand on to each other: on hosts that this machine plays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.sending import code_spread, send_code
from jobctl.jobspec.deploy.sending.code_spread import spread_code
from jobctl.jobspec.deploy.sending.data_source import FolderOnHost
from jobctl.jobspec.deploy.sending.send_code import pack_code
from jobctl.jobspec.plan.sent import Code
from tests.deploy.sending.spread_data import Remote
from tests.render.plans import plan as made_plan

HOSTS = ("h1", "h2", "h3")


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
        tell = told.append
        return SimpleNamespace(host=host, transport=Remote(name), tell=tell, work=work, own=work, told=told, job="job")

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


def test_only_files_that_may_be_the_same_are_read_however_long_that_takes(
    tmp_path: Path, jobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that containers wrote beside the code, as checkpoints, may have any size."""
    first, job, looks = packed(tmp_path), jobs["h1"], list[tuple[bytes, float]]()
    first.send(job)
    (Path(first.folder(job)) / "checkpoint").write_bytes(bytes(5_000_001))
    (tmp_path / "src" / "train.py").write_text("print(2)\n")
    second, run = packed(tmp_path), job.transport.run

    def noted(argv: Sequence[str], stdin: Any = b"", *, timeout: float = 0.0) -> Any:
        done = run(argv, stdin, timeout=timeout)
        looks.append((done.out, timeout))
        return done

    monkeypatch.setattr(job.transport, "run", noted)
    monkeypatch.setattr(send_code, "SLOW", 1000)
    assert second.look(job).same == {b"weights"}
    ((listed, patience),) = looks
    assert (b"./weights" in listed, b"checkpoint" in listed, patience > 5000.0) == (True, False, True)


def test_little_code_is_sent_to_each_host_by_itself(tmp_path: Path, jobs: dict[str, Any]) -> None:
    spread_code(packed(tmp_path), jobs.values())
    (tmp_path / "src" / "train.py").write_text("print(3)\n")
    package = packed(tmp_path)
    there = spread_code(package, jobs.values())
    assert all(package.look(job) is not None for job in jobs.values())
    for name, job in jobs.items():
        package.send(job, there[name])
        assert contents(tmp_path, name, package.code.version)["train.py"] == b"print(3)\n"


# From a host that has it.


def sent(jobs: dict[str, Any]) -> int:
    """Return how many bytes this machine has sent."""
    return sum(job.transport.sent for job in jobs.values())


def wanted(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / "src").iterdir()}


def test_a_host_that_comes_later_takes_it_from_another_one(tmp_path: Path, jobs: dict[str, Any]) -> None:
    source = tmp_path / "src"
    (source / "a\nback\\slash").write_bytes(os.urandom(10_000))
    (source / "link").symlink_to("train.py")
    (source / "run.sh").write_text("true\n")
    (source / "run.sh").chmod(0o755)
    package = packed(tmp_path)
    package.send(jobs["h2"])
    before = sent(jobs)
    assert spread_code(package, jobs.values()) == {}
    assert [contents(tmp_path, host, package.code.version) for host in HOSTS] == [wanted(tmp_path)] * 3
    assert sent(jobs) - before < 100_000
    there = tmp_path / "h3" / "code" / package.code.version
    assert (os.readlink(there / "link"), (there / "run.sh").stat().st_mode & 0o777) == ("train.py", 0o755)


def test_a_host_that_needs_none_gives_it_too(tmp_path: Path, jobs: dict[str, Any]) -> None:
    package = packed(tmp_path)
    package.send(jobs["h2"])
    before = sent(jobs)
    assert spread_code(package, [jobs["h3"]], jobs.values()) == {}
    assert contents(tmp_path, "h3", package.code.version) == wanted(tmp_path)
    assert not (tmp_path / "h1" / "code").exists()
    assert sent(jobs) - before < 100_000


def test_a_host_whose_job_writes_a_log_meanwhile_gives_it_too(
    tmp_path: Path, jobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = packed(tmp_path)
    package.send(jobs["h2"])
    log, run = tmp_path / "h2" / "code" / package.code.version / "log", jobs["h2"].transport.run
    log.write_text("begins\n")

    def goes_on(argv: Sequence[str], *given: Any, **how: Any) -> Any:
        if argv[2] == SCRIPTS.text("file_sums"):
            log.write_text("begins\ngoes on\n")
        return run(argv, *given, **how)

    monkeypatch.setattr(jobs["h2"].transport, "run", goes_on)
    before = sent(jobs)
    spread_code(package, [jobs["h3"]], jobs.values())
    assert contents(tmp_path, "h3", package.code.version) == wanted(tmp_path)
    assert (log.read_text(), sent(jobs) - before < 100_000) == ("begins\ngoes on\n", True)


def test_a_little_file_that_was_changed_there_comes_from_here(tmp_path: Path, jobs: dict[str, Any]) -> None:
    package = packed(tmp_path)
    package.send(jobs["h2"])
    (tmp_path / "h2" / "code" / package.code.version / "train.py").write_text("print('changed')\n")
    before = sent(jobs)
    spread_code(package, jobs.values())
    assert [contents(tmp_path, host, package.code.version) for host in ("h1", "h3")] == [wanted(tmp_path)] * 2
    assert sent(jobs) - before < 100_000


def test_much_that_was_changed_there_comes_from_a_host_that_has_it_unchanged(
    tmp_path: Path, jobs: dict[str, Any]
) -> None:
    package = packed(tmp_path)
    for host in ("h1", "h2"):
        package.send(jobs[host])
    (tmp_path / "h1" / "code" / package.code.version / "weights").write_bytes(b"changed")
    before = sent(jobs)
    spread_code(package, jobs.values())
    assert contents(tmp_path, "h3", package.code.version) == wanted(tmp_path)
    assert sent(jobs) - before < 100_000


def test_what_changes_while_it_is_given_does_not_become_the_code(
    tmp_path: Path, jobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = packed(tmp_path)
    package.send(jobs["h2"])
    (tmp_path / "h2" / "code" / package.code.version / "weights").write_bytes(os.urandom(5_000_000))
    monkeypatch.setattr(FolderOnHost, "sums", lambda folder: package.known)
    spread_code(package, [jobs["h3"]], jobs.values())
    assert contents(tmp_path, "h3", package.code.version) == {}
    assert any("it differs from what was sent first" in text for text in jobs["h3"].told)
    package.send(jobs["h3"])
    assert contents(tmp_path, "h3", package.code.version) == wanted(tmp_path)
