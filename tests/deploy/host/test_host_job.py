"""What a site makes of an engine that may not do all that a container asks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.engine import Engine as HostEngine
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.engine_kind import EngineKind
from jobctl.jobspec.deploy.model.errors import HostError, NotPrepared
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.render.environment import shell_template
from jobctl.jobspec.spec.hosts import Host

REFUSED = b"docker: Error response from daemon: OCI runtime create failed: error setting rlimit type %d: not permitted"


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let engines be Docker Engine without asking them."""
    monkeypatch.setattr(HostEngine, "kind", lambda engine: EngineKind("docker", "26.1.5", "layers"))
    monkeypatch.setattr(HostEngine, "raises_limits", lambda engine: True)


class Engine:
    """A host whose engine may not raise the limits `kinds`, by the kernel's numbers, and refuses containers that ask for it."""

    host = "h1"

    def __init__(self, *kinds: int) -> None:
        self.kinds, self.asked = kinds, list[list[str]]()

    def run(self, argv: Sequence[str], stdin: bytes = b"", *, timeout: float = 0.0) -> Result:
        del stdin, timeout
        if argv[0] == "test":
            return Result(0, b"", b"")
        words = argv[argv.index(SCRIPTS.text("compose")) + 3].split() if SCRIPTS.text("compose") in argv else argv
        asked = [word for word in words if word.startswith(("JOBCTL_MEMLOCK=", "JOBCTL_NICE="))]
        self.asked.append(asked)
        raised = {7, *([] if "JOBCTL_MEMLOCK=65536" in asked else [8]), *([13] if "JOBCTL_NICE=20" in asked else [])}
        refused = [kind for kind in self.kinds if kind in raised]
        return Result(125, b"", REFUSED % refused[0]) if refused else Result(0, b"", b"")


MEMLOCK, NICE = "JOBCTL_MEMLOCK=65536", "JOBCTL_NICE=20"


def host_job(engine: Engine, target: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[HostJob, list[object]]:
    made, ended = HostJob(Host("h1"), engine, "job", target), []  # type: ignore[arg-type,var-annotated]
    made.use_directories("/w/h1/job", "/w/h1/job")
    monkeypatch.setattr(made, "end", lambda name, grace: ended.append(name))
    return made, ended


@pytest.mark.parametrize("target", ["compose", "ssh"])
def test_locked_memory_is_left_alone_where_the_engine_may_not_lift_it(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(8)
    made, ended = host_job(engine, target, monkeypatch)
    made.start(1)
    assert (engine.asked, ended) == ([[NICE], [MEMLOCK, NICE]], [1])  # what could not run is removed before
    made.start(2)
    assert engine.asked[2:] == [[MEMLOCK, NICE]]  # it is known by now
    assert made.starter.run_script(b"docker run").code == 0


@pytest.mark.parametrize("target", ["compose", "ssh"])
def test_each_limit_that_the_engine_may_not_raise_is_left_alone(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(13, 8)
    made, ended = host_job(engine, target, monkeypatch)
    made.start(1)
    assert (engine.asked, ended) == ([[NICE], [], [MEMLOCK]], [1, 1])


def test_an_engine_is_not_asked_to_raise_what_it_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostEngine, "raises_limits", lambda engine: False)
    engine = Engine(13)
    made, _ = host_job(engine, "compose", monkeypatch)
    made.start(1)
    assert engine.asked == [[]]


def test_a_container_that_only_looks_starts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(8)
    made, _ = host_job(engine, "ssh", monkeypatch)
    assert made.starter.run_script(b"docker run").code == 0
    assert engine.asked == [[NICE], [MEMLOCK, NICE]]


def test_other_limits_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(7)
    made, ended = host_job(engine, "ssh", monkeypatch)
    with pytest.raises(HostError) as caught:
        made.start(1)
    assert (caught.value.code, len(engine.asked), ended) == ("ulimit-refused", 1, [])


@pytest.mark.parametrize(("target", "artefact"), [("compose", "compose.yaml"), ("ssh", "node-1.sh")])
def test_it_is_told_where_somebody_has_removed_the_files_that_start_a_container(
    tmp_path: Path, target: Any, artefact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(
        f"#!/bin/sh\necho 'invalid mount config: bind source path does not exist: {tmp_path}/code/1' >&2; exit 1\n"
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:/usr/bin:/bin")
    made = HostJob(Host("h1"), LocalTransport(), "job", target)

    def refused(work: Path) -> HostError:
        made.use_directories(str(work), str(work))
        with pytest.raises(HostError) as caught:
            made.start(1)
        return caught.value

    gone = refused(tmp_path / "gone")
    assert isinstance(gone, NotPrepared)
    assert str(gone) == f"localhost: cannot start node 1: files of the job are not in {tmp_path}/gone any more"
    (tmp_path / artefact).write_text("docker run\n")
    assert isinstance(refused(tmp_path), NotPrepared)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / artefact).write_text("docker run\n")
    assert refused(tmp_path / "work").code == "no-such-path"  # a folder of the user's


@pytest.mark.parametrize("target", ["compose", "ssh"])
def test_sudo_is_for_docker_alone(tmp_path: Path, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes no variables on, its user is another, and sudoers may allow nothing but `docker`."""
    work, sudo, told = tmp_path / "work", tmp_path / "bin" / "sudo", tmp_path / "told"
    for folder in (sudo.parent, work / "node-1"):
        folder.mkdir(parents=True)
    sudo.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {told}\ncase "$*" in *inspect*) exit 1 ;; esac\n')
    sudo.chmod(0o755)
    script = shell_template("ssh_start.sh.j2").render(name="n", hash="h", directory="node-1", labels=())
    (work / "node-1.sh").write_text(f"set -eu\ndir={work}\nset -- image\n{script}")
    (work / "node-1" / "report.json").write_text("{}\n")
    monkeypatch.setenv("PATH", f"{sudo.parent}:/usr/bin:/bin")
    made = HostJob(Host("h1", docker="sudo"), LocalTransport(), "job", target)
    made.use_directories(str(work), str(work))
    made.start(1)
    made.starter.run_script(shell_template("look.sh.j2").render(**LOOK).encode())
    files = f"-f {work}/compose.yaml --env-file {work}/compose.env"
    last = told.read_text().splitlines()[-2:]
    start = f"compose {files} up -d --no-recreate --quiet-pull node-1" if target == "compose" else "run --detach image"
    assert last == [f"-n docker {start}", "-n docker run --rm  -- image true"]


LOOK = {"work": "/w", "rdma": False, "flags": (), "options": (), "alike": "", "image": "image", "command": ("true",)}
