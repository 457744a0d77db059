"""The files that `pull` and `down` fetch from a host, as they are written here."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.collecting import collect
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host


def test_nothing_is_needed_that_the_python_of_debian_12_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.4 has brought filters to `tarfile`, and with these another way to change its members."""
    for owner, name in ((tarfile, "data_filter"), (tarfile.TarInfo, "replace"), (tarfile.TarFile, "extract")):
        monkeypatch.delattr(owner, name, raising=False)
    work, into = tmp_path / "work", tmp_path / "into"
    (work / "outputs").mkdir(parents=True)
    for name, mode in (("a", 0o6775), ("b", 0o466), ("c", 0o700)):
        (work / "outputs" / name).write_text(name)
        (work / "outputs" / name).chmod(mode)
        os.utime(work / "outputs" / name, (1000, 1000))
    host_job = HostJob(Host("h1"), LocalTransport("h1"), "job", "ssh")
    host_job.use_directories(str(work), str(work))
    assert collect(host_job, into) == 3
    found = [(into / "outputs" / "h1" / name).stat() for name in "abc"]
    assert [one.st_mode & 0o7777 for one in found] == [0o755, 0o644, 0o700]
    assert {one.st_mtime for one in found} == {1000}
