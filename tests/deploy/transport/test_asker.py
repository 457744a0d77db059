"""A script on a host that answers the same question again and again: on one channel, in one piece, until nobody asks."""

from __future__ import annotations

import fcntl
import os
import signal
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.asker import Asker
from jobctl.jobspec.deploy.host.work_reader import SUPERVISED, WorkReader, files_in
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.targets.sampling import HostSamplers
from jobctl.jobspec.deploy.transport import live_fanout
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from tests.tools.waiting import PATIENCE, promptly

WHO = ["sh", "-c", "while read -r _; do printf '%s\\n== end\\n' $$; done"]


class Counting(LocalTransport):
    """Notes what it is told to run, and may give no session to a script that stays."""

    def __init__(self, sessions: int = 99) -> None:
        super().__init__("h")
        self.sessions, self.dialled, self.ran = sessions, 0, 0

    def dial(self, argv: Sequence[str]) -> Any:
        self.dialled += 1
        if self.dialled > self.sessions:
            raise HostError("h", "too-many-sessions", "sshd gives no session")
        return super().dial(argv)

    def run(self, argv: Sequence[str], *args: Any, **how: Any) -> Result:
        self.ran += 1
        return super().run(argv, *args, **how)


def asker(argv: Sequence[str] = WHO, transport: Counting | None = None, timeout: float = PATIENCE) -> Asker:
    return Asker(transport or Counting(), argv, "ask", timeout)


def pid(answer: bytes | None) -> int:
    assert answer is not None
    return int(answer.splitlines()[0])


def runs(number: int) -> bool:
    """Say whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_script_answers_until_the_channel_is_closed() -> None:
    transport = Counting()
    one = asker(transport=transport)
    number = pid(one.ask())
    assert pid(one.ask()) == number
    assert (transport.dialled, runs(number)) == (1, True)
    one.close()
    promptly(lambda: not runs(number))
    with pytest.raises(HostError, match="nobody asks any more"):  # else it would connect to the host again
        one.ask()
    assert transport.dialled == 1


def test_a_script_that_nobody_holds_any_more_ends() -> None:
    one = asker()
    number = pid(one.ask())
    del one
    promptly(lambda: not runs(number))


def test_a_script_that_was_killed_is_followed_by_another_one() -> None:
    one = asker()
    number = pid(one.ask())
    os.kill(number, signal.SIGKILL)
    assert pid(one.ask()) != number
    with pytest.raises(HostError, match="cannot ask: the connection was lost") as lost:
        asker(["true"]).ask()
    assert lost.value.code == "lost"


def test_a_script_that_says_nothing_is_given_up() -> None:
    with pytest.raises(HostError, match=r"it has said nothing for 0\.2 s") as silent:
        asker(["sh", "-c", "read -r _; read -r _"], timeout=0.2).ask()
    assert silent.value.code == "silent"


def test_without_a_session_there_is_no_answer() -> None:
    assert asker(transport=Counting(sessions=0)).ask() is None


# What it answers.


@pytest.mark.parametrize("sessions", [0, 99])
def test_samples(sessions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host is sampled on one channel; where sshd gives none for it, by a command each time."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "0, A GPU, 50, 1, 2, 3.5, 40, 0, 0"\necho "what it complains of" >&2\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name in ("FIRST_ANSWER_TIMEOUT", "SILENCE_TIMEOUT"):
        monkeypatch.setattr(live_fanout, name, PATIENCE)
    samplers, transport = HostSamplers(live=True), Counting(sessions)
    for _ in range(3):
        (sample,) = samplers.take({"h": transport}).values()
        assert sample.memory
        assert [device.name for device in sample.devices] == ["A GPU"]
    assert (transport.dialled, transport.ran) == ((1, 0) if sessions else (3, 3))
    samplers.take({"h": Counting()})  # it is reached in another way now
    samplers.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A job's work directory, with a node whose launcher has reported."""
    for name, text in {"run/control.json": '{"number": 3}', "node-0/report.json": '{"node": 0}'}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "node-1").mkdir()
    return tmp_path


def looking(work: Path, transport: Counting, *, looks_on: bool) -> tuple[WorkReader, Result]:
    reader = WorkReader()
    if looks_on:
        reader.look_on()
    return reader, reader.read(transport, str(work), str(work))


def names(result: Result) -> dict[str, Any]:
    return {str(name): content for name, content in files_in(result.out).items()}


def test_who_looks_on_sees_what_a_command_shows(work: Path) -> None:
    transport = Counting()
    reader, first = looking(work, transport, looks_on=True)
    _, plain = looking(work, Counting(), looks_on=False)
    assert (names(first), first.code, first.err.split()[:1]) == (names(plain), 0, [b"room"])
    assert set(names(first)) == {".", "run/control.json", "node-0", "node-0/report.json", "node-1"}
    (work / "node-0" / "report.json").write_text('{"node": 0, "progress": 5}')
    (work / "supervisor.lock").write_text("{}")
    again = reader.read(transport, str(work), str(work))
    assert names(again)["node-0/report.json"] == {"node": 0, "progress": 5}
    with (work / "supervisor.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert reader.read(transport, str(work), str(work)).code == SUPERVISED
    gone = reader.read(transport, f"{work}/gone", str(work))
    assert (transport.dialled, transport.ran, gone.code) == (1, 0, 0)


def test_who_looks_on_where_nothing_is_there(work: Path) -> None:
    _, result = looking(work / "gone", Counting(), looks_on=True)
    assert (result, names(result)) == (Result(0, b"", b""), {})


@pytest.mark.parametrize("missing", ["gzip", "base64", "session"])
def test_who_looks_on_without_what_that_needs(work: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = work / "tools"
    tools.mkdir()
    for name in ("sh", "tar", "stat", "flock", "true", *({"gzip", "base64"} - {missing})):
        (tools / name).symlink_to(next(p for p in (Path("/usr/bin") / name, Path("/bin") / name) if p.exists()))
    monkeypatch.setenv("PATH", str(tools))
    transport = Counting(sessions=0 if missing == "session" else 99)
    reader, first = looking(work, transport, looks_on=True)
    assert names(first)["run/control.json"] == {"number": 3}
    assert names(reader.read(transport, str(work), str(work))) == names(first)
    assert (transport.dialled, transport.ran, reader.looks_on) == (1, 2, False)


def archive(*members: tuple[str, str], kind: int = tarfile.GNU_FORMAT) -> bytes:
    into = BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=kind) as made:
        for name, text in members:
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            made.addfile(member, BytesIO(text.encode()))
    return into.getvalue()


LONG = f"node-0/{'x' * 90}.json"


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("name", ["node-0/report.json", LONG])
def test_any_archive_is_read(kind: int, name: str) -> None:
    if kind == tarfile.USTAR_FORMAT:
        name = f"{'d' * 60}/{name}"
        assert len(name) < 256
    text = '{"a": "' + "é" * 600 + '"}'
    found = files_in(archive((name, text), ("run/ledger.json", "{}"), ("node-1/report.json", "{torn"), kind=kind))
    assert found == {PurePosixPath(name): {"a": "é" * 600}, PurePosixPath("run/ledger.json"): {}}


def test_an_archive_that_is_cut_off_has_what_came_before() -> None:
    whole = archive(("run/ledger.json", "{}"), ("node-0/report.json", f'["{"x" * 2000}"]'))
    assert set(map(str, files_in(whole[:2000]))) == {"run/ledger.json"}
    assert files_in(b"") == files_in(b"no archive") == {}
