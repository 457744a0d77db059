"""A disk without room: what is said names the place, whoever found out."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import check_answer
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.store.code import PULLED, note_pulled
from jobctl.jobspec.deploy.store.files import append_line, told_of
from jobctl.jobspec.deploy.transport.base import Result, problem
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host
from jobctl.views.failure import command

FULL = "No space left on device"


def write_too_much() -> None:
    with open("/dev/full", "wb") as file:
        file.write(b"x")


def test_a_full_disk_of_this_machine_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=FULL) as caught, told_of(tmp_path / "plan.json"):
        write_too_much()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "plan.json"))


def test_it_is_named_where_pull_notes_what_it_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", lambda *_, **how: write_too_much())
    with pytest.raises(OSError, match=FULL) as caught:
        note_pulled(tmp_path, set())
    assert caught.value.filename == str(tmp_path / PULLED)


def test_the_command_ends_with_place_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    from typer import Exit

    @command
    def fails() -> None:
        with told_of(Path("/state/plan.json")):
            write_too_much()

    with pytest.raises(Exit):
        fails()
    assert capsys.readouterr().err == f"error: /state/plan.json: {FULL}\nhint: make room there\n"


def test_a_lock_that_cannot_be_made_says_why() -> None:
    done = subprocess.run(SCRIPTS.argv("lock", "/proc/none/lock", "{}", ""), capture_output=True, text=True)
    assert done.stdout.startswith("failed mkdir: cannot create directory")
    with pytest.raises(HostError) as caught:
        check_answer(f"failed mkdir: cannot create directory '/w/job': {FULL}", "h1", "/w/job/lock")
    assert (caught.value.code, caught.value.message) == (
        "disk-full",
        f"h1: cannot lock /w/job/lock: mkdir: cannot create directory '/w/job': {FULL}",
    )


@pytest.mark.parametrize("words", [FULL, FULL.lower()])
def test_engines_and_tools_say_it_in_their_way(words: str) -> None:
    result = Result(1, b"", f"Error response from daemon: mkdir /var/lib/docker/overlay2/x: {words}\n".encode())
    host_job = HostJob(Host("h1"), LocalTransport("h1"), "job", "ssh")
    found = host_job.starter.error("start node 0", result), problem("h1", "write into /w", result)
    assert [error.code for error in found] == ["disk-full", "disk-full"]
    assert all("/var/lib/docker/overlay2/x" in error.message for error in found)


def test_a_line_that_broke_off_spoils_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append_line(path, "first")
    with path.open("a") as file:
        file.write("sec")  # the disk was full
    append_line(path, "third")
    append_line(path, "fourth")
    assert path.read_text() == "first\nsec\nthird\nfourth\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_tells_a_name_that_is_not_utf8_as_an_escape(tmp_path: Path) -> None:
    path, name = tmp_path / "events.jsonl", os.fsdecode(b"data-\xff")
    append_line(path, json.dumps({"file": name}, ensure_ascii=False))
    assert json.loads(path.read_text()) == {"file": name}
