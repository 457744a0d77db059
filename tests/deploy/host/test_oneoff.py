"""A one-off command beside a job, on a host that this machine plays: what it gets, and whose files are left alone."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.webhooks import leave_webhooks
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.model.engine_kind import EngineKind
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.sending.send_code import pack_code
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.plan.types import Checkpoint, Plan
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO

OURS, THEIRS = {"TOKEN": "of this shell"}, {"TOKEN": "of the job", "MORE": "x"}


class Job:
    """A job that is down, on one host; `during` is what happens there while a command runs."""

    def __init__(self, folder: Path) -> None:
        inventory = Inventory((Host("h0", dir=str(folder / "dir")),))
        self.source = folder / "src"
        self.source.mkdir()
        (self.source / "train.py").write_text("print(1)\n")
        self.hosts = Hosts(JobDir(folder / "jobs" / TWO.job), "ssh", inventory, TWO)
        self.host_job.transport = self.host_job.starter.transport = LocalTransport("h0")
        self.during: Callable[[], object] = lambda: None
        self.argv: Sequence[str] = ()
        self.removed: list[str] = []

    @property
    def host_job(self) -> HostJob:
        return self.hosts.host_jobs["h0"]

    @property
    def work(self) -> Path:
        return Path(self.host_job.work)

    def plan(self, *secrets: str) -> Plan:
        first = replace(TWO.nodes[0], launch=replace(TWO.nodes[0].launch, secrets=secrets))
        code = Code(str(self.source), "/workspace", (), outputs=("runs",), version="v1")
        return replace(TWO, nodes=(first, *TWO.nodes[1:]), code=code)

    def run(self, *secrets: str) -> int:
        plan = self.plan(*secrets)
        return self.hosts.run_oneoff(plan, plan.nodes[0], RuntimeInputs({}, OURS), ["ls"])

    def comes_up(self) -> None:
        """Have another command bring the job up, with secrets of its own and the webhooks of `notify`."""
        self.host_job.send([], ["run", "node-0", "outputs/runs"], secrets=True)
        self.host_job.send_secrets(THEIRS)
        leave_webhooks(self.host_job, {"version": 1, "webhooks": []})
        package = pack_code(self.plan())
        assert package is not None
        package.send(self.host_job)
        (self.work / "lock").write_text("{}")
        (self.work / "run" / "control.json").write_text("{}")
        (self.work / "node-0" / "log").write_text("trains")

    def files(self) -> dict[str, str]:
        """Return what is below the work directory, but for what commands have."""
        found = (path for path in self.work.rglob("*") if path.is_file() and ".run-" not in str(path))
        return {str(path.relative_to(self.work)): path.read_text() for path in found}

    def places(self) -> list[Path]:
        """Return the folders of commands that run now."""
        return sorted(self.work.glob(".run-*"))

    def secret(self) -> Path:
        """Return the file with the secrets of the command that runs now."""
        (place,) = self.places()
        return place / "secrets" / "secrets.json"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(tmp_path)

    def interact(transport: LocalTransport, argv: Sequence[str]) -> int:
        made.argv = argv
        made.during()
        return 7

    monkeypatch.setattr(Engine, "kind", lambda engine: EngineKind("docker", "26.1.5", "layers"))
    monkeypatch.setattr(Engine, "raises_limits", lambda engine: False)
    monkeypatch.setattr(images, "ensure", lambda *given: None)
    monkeypatch.setattr(Containers, "remove_one", lambda containers, name: made.removed.append(name))
    monkeypatch.setattr(LocalTransport, "interact", interact)
    return made


def test_a_job_that_comes_up_while_a_command_runs_keeps_all_that_it_has(job: Job) -> None:
    there = list[dict[str, str]]()

    def up() -> None:
        job.comes_up()
        there.append(job.files())

    job.during = up
    assert job.run("TOKEN") == 7
    assert [job.files()] == there
    assert len(there[0]) == 7
    assert job.places() == []


@pytest.mark.parametrize("secrets", [(), ("TOKEN",)])
def test_a_command_beside_a_running_job_leaves_its_files_alone(job: Job, secrets: tuple[str, ...]) -> None:
    job.comes_up()
    before, seen = job.files(), list[object]()
    job.during = lambda: seen.append((job.files(), [path.name for path in job.places()[0].glob("secrets")]))
    job.run(*secrets)
    assert seen == [(before, ["secrets"] if secrets else [])]
    assert job.files() == before


def test_two_commands_at_once_leave_each_other_alone(job: Job) -> None:
    there = list[tuple[list[Path], bool]]()

    def second() -> None:
        job.during = lambda: there.append((job.places(), False))
        first = job.secret()
        job.run("TOKEN")
        there.append((job.places(), first.exists()))

    job.during = second
    job.run("TOKEN")
    assert [(len(places), kept) for places, kept in there] == [(2, False), (1, True)]
    assert len(set(job.removed)) == 2
    assert not job.work.parent.exists()


def test_the_secrets_of_a_command_are_readable_by_their_owner_only_and_gone_once_it_begins(
    job: Job, tmp_path: Path
) -> None:
    """Whatever becomes of jobctl and the connection then."""
    modes, given = list[int](), tmp_path / "given"

    def begin() -> None:
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in (job.secret().parent, job.secret()))
        (load,) = re.findall(r"import json, os, sys; .*sys\.argv\[1:\]\)", job.argv[-1])
        program = load.replace("'\"'\"'", "'").replace("/jobctl/secrets", str(job.secret().parent))
        subprocess.run([sys.executable, "-c", program, "sh", "-c", f'printf %s "$TOKEN" > {given}'], check=True)
        assert job.secret().read_text() == ""

    job.during = begin
    job.run("TOKEN")
    assert (modes, given.read_text()) == ([0o700, 0o1600], OURS["TOKEN"])
    assert not job.work.exists()


def test_a_command_has_code_outputs_and_secrets_of_its_own(job: Job) -> None:
    asked = list[str]()

    def start() -> None:
        environ = {"PATH": "/usr/bin:/bin", "JOBCTL_DOCKER": r"printf %s\n"}
        done = subprocess.run(job.argv[-3:], env=environ, capture_output=True, text=True, check=True)
        asked.extend(line.replace('"', "") for line in done.stdout.splitlines())

    job.during = start
    job.run("TOKEN")
    assert job.removed == [asked[asked.index("--name") + 1]]
    place = f"{job.work}/.run-{asked[asked.index('--name') + 1].rpartition('-')[2]}"
    assert [line for line in asked if line.startswith(f"type=bind,source={job.work}")] == [
        f"type=bind,source={place}/secrets,target=/jobctl/secrets",
        f"type=bind,source={place}/code/v1,target=/workspace",
        f"type=bind,source={place}/outputs/runs,target=/workspace/runs",
    ]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_nothing_is_left_of_a_command_whose_jobctl_is_told_to_end(job: Job, end: signal.Signals) -> None:
    usual = signal.default_int_handler if end == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(end, usual)  # these tests may run where nobody can interrupt them
    try:
        job.during = lambda: os.kill(os.getpid(), end)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            job.run("TOKEN")
        assert signal.getsignal(end) == usual
    finally:
        signal.signal(end, before)
    assert not job.work.exists()
    (removed,) = job.removed  # its container
    assert re.fullmatch(rf"jobctl-{TWO.job}-run-[0-9a-f]{{8}}", removed)


def test_what_cannot_be_removed_is_named(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that tries as root, too, has another name than those of commands that change the job."""
    made = list[tuple[str, str]]()

    class Client:
        def create_container(self, image: str, argv: Sequence[str], *, name: str, **how: object) -> dict[str, str]:
            made.append((image, name))
            return {"Id": "1"}

        def __getattr__(self, asked: str) -> Callable[..., object]:
            return lambda *given, **how: {"StatusCode": 1}

    def denied(transport: LocalTransport, argv: Sequence[str], **how: object) -> Result:
        return Result(1, b"", b"rm: cannot remove 'x': Permission denied")

    monkeypatch.setattr(Engine, "asked", lambda engine: nullcontext(Client()))
    job.during = lambda: monkeypatch.setattr(LocalTransport, "run", denied)
    with pytest.raises(HostError, match="cannot remove") as caught:
        job.run()
    found = re.search(r"sudo rm -rf .*/\.run-([0-9a-f]{8})`", str(caught.value.hint))
    assert found is not None
    assert made == [(TWO.nodes[0].container.image, f"jobctl-{TWO.job}-root-{found[1]}")]


def test_down_removes_what_a_killed_command_has_left(job: Job) -> None:
    left = job.work / ".run-0123abcd" / "secrets"
    left.mkdir(parents=True)
    assert job.host_job.observe(()).there  # so that `down` has something to do
    job.host_job.erase()
    assert not job.work.exists()


def test_the_code_that_a_job_has_is_copied_on_the_host(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not what containers have changed in it; and the job's own stays as it is."""
    (job.source / "weights").write_text("much")
    job.comes_up()
    (job.work / "code" / "v1" / "train.py").write_text("changed by the job\n")
    sent, seen = list[bytes](), list[dict[str, str]]()
    run = LocalTransport.run

    def record(self: LocalTransport, argv: Sequence[str], stdin: object = b"", **how: float) -> Result:
        if not isinstance(stdin, bytes):
            stdin = b"".join(stdin)  # type: ignore[call-overload]
            sent.append(stdin)
        return run(self, argv, stdin, **how)

    def look() -> None:
        (place,) = job.places()
        seen.append({path.name: path.read_text() for path in (place / "code" / "v1").iterdir() if path.is_file()})
        (place / "code" / "v1" / "weights").write_text("changed by the command")

    monkeypatch.setattr(LocalTransport, "run", record)
    job.during = look
    job.run()
    assert seen == [{"train.py": "print(1)\n", "weights": "much"}]
    assert (b"print(1)\n" in sent[0], b"much" in sent[0]) == (True, False)
    assert (job.work / "code" / "v1" / "weights").read_text() == "much"


def test_a_command_has_the_variables_of_a_process_that_no_generation_changes(job: Job) -> None:
    """A script that reads JOBCTL_CHECKPOINT_DIR ended at once on hosts, and ran on this machine."""
    plan = replace(job.plan(), checkpoint=Checkpoint("/ckpt", shared=True, keep=2))
    job.hosts.run_oneoff(plan, plan.nodes[0], RuntimeInputs({}, OURS), ["ls"])
    given = re.findall(r"--env (JOBCTL_\w+=\S+)", " ".join(job.argv))
    assert given == ["JOBCTL_CHECKPOINT_DIR=/ckpt", f"JOBCTL_JOB={plan.job}", "JOBCTL_NODE=0"]
