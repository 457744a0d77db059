"""The configuration that `ssh-config` prints, as the ssh of OpenSSH reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from jobctl.jobspec import load, plan
from jobctl.jobspec.deploy.store.jobdir import job_dir
from jobctl.jobspec.deploy.targets.local.deployer import Local
from jobctl.jobspec.operations.inspect.ssh import ssh_config
from jobctl.jobspec.operations.resolve.job import Reached

SPEC = "name: resnet\nframework: torch\nmodule: train\nnodes: 2\ncheckpoint: /tmp/ck\n"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What ssh makes of the configuration for node 1, below a directory whose name it could misread."""
    ssh = shutil.which("ssh")
    if ssh is None:
        (pytest.fail if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip)("there is no ssh")
    folder = tmp_path / "50 %h it's"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(folder / "state"))
    (folder / "job.yaml").write_text(SPEC)
    job = Local(job_dir(folder / "state", "resnet"), plan(load("job.yaml")))
    (tmp_path / "config").write_text(ssh_config(job, Reached(ssh_config=Path("my config"))))
    argv = [str(ssh), "-G", "-F", str(tmp_path / "config"), "jobctl-resnet-1"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_ssh_reads_what_was_written(read: dict[str, str]) -> None:
    root = Path.cwd() / "state/jobs/resnet"
    wanted = {
        "user": "jobctl",
        "hostname": "jobctl-resnet-1",
        "identityfile": f"{root}/ssh_user_key",
        "identitiesonly": "yes",
        "userknownhostsfile": f"{root}/known_hosts",
        "globalknownhostsfile": "/dev/null",
        "stricthostkeychecking": "true",
        "forwardagent": "no",
    }
    assert {name: read[name].replace("%%", "%") for name in wanted} == wanted


def test_the_proxy_command_is_read_by_a_shell_as_it_was_meant(read: dict[str, str]) -> None:
    text = read["proxycommand"].replace("%%", "%")
    program = f"{shutil.which('env')} printf '%s\\n'"
    told = subprocess.run(
        ["sh", "-c", text.replace("env ", f"{program} ", 1)], capture_output=True, text=True, check=True
    )
    state, _, *rest = told.stdout.splitlines()
    assert state == f"JOBCTL_STATE_DIR={Path.cwd()}/state"
    assert rest == [
        *("-m", "jobctl", "ssh", "resnet", "--node", "1", "--stdio"),
        *("--ssh-config", f"{Path.cwd()}/my config"),
    ]


@pytest.mark.parametrize(
    ("variable", "given", "state"),
    [("XDG_STATE_HOME", "{}/here:there", "here:there/jobctl"), ("JOBCTL_STATE_DIR", "here:there", "here:there")],
)
def test_an_editor_finds_the_job_whatever_its_own_environment(
    variable: str, given: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("JOBCTL_STATE_DIR", "XDG_STATE_HOME", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, given.format(tmp_path))
    Path("job.yaml").write_text(SPEC)
    text = ssh_config(Local(job_dir(tmp_path / state, "resnet"), plan(load("job.yaml"))), Reached())
    assert f"ProxyCommand env JOBCTL_STATE_DIR={tmp_path}/{state} " in text
