"""What a power cut takes away: a file that was not written through to the disk may be empty afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.ssh_server.keys import keys_of
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.secrets import own_key
from tests.deploy.apply.test_executor import TWO


class Disk:
    """The files whose content is on the disk by the time that they have their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.safe, self._written = set[str](), set[int]()
        fsync, replace = os.fsync, os.replace

        def note(handle: int) -> None:
            fsync(handle)
            self._written.add(os.fstat(handle).st_ino)

        def rename(source: str, target: Path) -> None:
            if os.stat(source).st_ino in self._written:
                self.safe.add(target.name)
            replace(source, target)

        monkeypatch.setattr(os, "fsync", note)
        monkeypatch.setattr(os, "replace", rename)


def test_what_cannot_be_made_again_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, job = Disk(monkeypatch), JobDir(tmp_path / "jobs" / "job")
    job.create()
    job.remember({"job": "job", "reach": None}, TWO, {"spec": {}})
    own_key(job.secrets_key)
    keys_of(job)
    kept = {"job.json", "plan.json", "source.json", "secrets.key", "ssh_host_key", "ssh_user_key"}
    assert kept - disk.safe == set()


def test_keys_that_an_earlier_version_has_lost_are_made_again(tmp_path: Path) -> None:
    job = JobDir(tmp_path / "jobs" / "job")
    before = keys_of(job)
    for path in (job.ssh_host_key, job.secrets_key):
        path.write_bytes(b"")
    keys = keys_of(job)
    assert (keys.host.get_name(), keys.user) == (before.host.get_name(), before.user)
    assert keys.host.get_base64().encode() in job.known_hosts.read_bytes()
    assert len(own_key(job.secrets_key)) == 32
