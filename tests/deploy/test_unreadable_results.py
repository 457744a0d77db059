"""Output files that containers have written for themselves alone, when another version of the code is sent."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport

# Root may read everything, but for a process without these rights.
_POWERLESS = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def send(top: Path, version: str, base: str) -> Result:
    """Make a version of the code without files, from version `base` that may have written `model.pt`."""
    argv = SCRIPTS.argv("send_code", str(top), version, base, "0", "10240", "0", "0", "./model.pt")
    return LocalTransport().run([*_POWERLESS, *argv], bytes(10240))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Versions v1 and v2, of which v1 has a file that cannot be read."""
    folder = tmp_path / "code"
    for version in ("v1", "v2"):
        (folder / version).mkdir(parents=True)
    (folder / "v1" / "model.pt").write_text("weights")
    (folder / "v1" / "model.pt").chmod(0)
    return folder


def test_code_is_not_sent_without_an_output_file_that_cannot_be_read(top: Path) -> None:
    result = send(top, "v3", "v1")
    assert result.code == 1
    assert f"chmod a+r '{top}/v1/./model.pt'" in result.words
    assert sorted(os.listdir(top)) == ["v1", "v2"]


def test_a_version_with_an_output_file_that_cannot_be_read_is_not_removed(top: Path) -> None:
    assert send(top, "v3", "v2").code == 0
    assert sorted(os.listdir(top)) == ["v1", "v2", "v3"]
    (top / "v1" / "model.pt").chmod(0o600)
    assert send(top, "v4", "v2").code == 0
    assert sorted(os.listdir(top)) == ["v2", "v4"]


def test_a_node_that_goes_on_with_an_older_output_file_tells_so(tmp_path: Path) -> None:
    told: list[str] = []
    answers = [
        Result(123, b"", b"cp: cannot open 'code/v1/model.pt' for reading: Permission denied\n"),
        Result(0, b"", b"sh: warning: setlocale: LC_ALL: cannot change locale\n"),
    ]
    transport = SimpleNamespace(run=lambda argv, **how: answers.pop(0))
    job: Any = SimpleNamespace(transport=transport, work=tmp_path, host=SimpleNamespace(name="h0"), tell=told.append)
    for _ in range(2):
        HostJob.renew_results(cast("HostJob", job), "v2")
    assert told == [
        "h0 goes on with older output files: cp: cannot open 'code/v1/model.pt' for reading: Permission denied"
    ]
