"""What stays in /var/tmp, where the home is on NFS: systemd-tmpfiles removes there what nobody has read for 30 days."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import hold_on
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.host.webhooks import leave_webhooks
from jobctl.jobspec.deploy.model.liveness import EXPIRY
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host

KEPT = {"lock", "supervisor", "supervisor.lock", "secrets/secrets.json", "secrets/notify.json"}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """What is the host's own, of a job with secrets that a command has locked and a supervisor follows."""
    host_job = HostJob(Host("h1", dir=str(tmp_path / "dir")), LocalTransport("h1"), "job", "ssh")
    host_job.send([], ["run"])
    host_job.send_secrets({"TOKEN": "value"})
    leave_webhooks(host_job, {})
    watch = SCRIPTS.argv("watch", *host_job.place_arguments, "{}", "me", str(EXPIRY))
    with (
        hold_on([host_job], "lock", "up", 0.0),
        subprocess.Popen(watch, stdin=-1, stdout=-1, text=True) as watching,
    ):
        assert watching.stdin is not None
        assert watching.stdout is not None
        while watching.stdout.readline() != "t\n":  # then it ticks
            pass
        yield Path(host_job.own)
        watching.stdin.close()


def test_files_of_the_hosts_own_are_marked_to_stay(own: Path) -> None:
    assert {path: oct((own / path).stat().st_mode & 0o7777) for path in KEPT} == dict.fromkeys(KEPT, "0o1600")


def test_systemd_removes_none_of_them(own: Path, tmp_path: Path) -> None:
    if (tmpfiles := shutil.which("systemd-tmpfiles")) is None:
        pytest.skip("there is no systemd-tmpfiles here")
    (own / "old").touch()
    (tmp_path / "tmp.conf").write_text(f"q {own} 0700 - - 0\n")  # instead of 30 days
    subprocess.run([tmpfiles, "--clean", tmp_path / "tmp.conf"], check=True)
    left = {str(path.relative_to(own)) for path in own.rglob("*") if path.is_file()}
    assert (left & KEPT, "old" in left) == (KEPT, False)
