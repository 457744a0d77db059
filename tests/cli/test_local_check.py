"""The preflight of this machine, for jobs of target `local`: devices and framework are looked for before the start."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import devices
from jobctl.jobspec.deploy.store.processes import kill_marked
from jobctl.main import main

SPEC = (
    "name: small\nframework: paddle\ncommand: [python3, -c, pass]\nper: node\ndevices: {}\ncheckpoint: {}/checkpoints\n"
)


@pytest.fixture
def jobctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    environ = {"HOME": str(tmp_path), "JOBCTL_STATE_DIR": str(tmp_path / "state"), "NO_COLOR": "1"}
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), **environ})

    def run(kind: str, *argv: str) -> tuple[int, str, str]:
        Path("job.yaml").write_text(SPEC.format(kind, tmp_path))
        with pytest.raises(SystemExit) as ended:
            main(list(argv))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    yield run
    kill_marked(tmp_path / "state" / "jobs" / "small" / "host")  # an `up` that should have been refused


@pytest.mark.parametrize(
    ("there", "wanted", "said"),
    [
        (None, "gpu:2", "this machine has no devices of kind `gpu`, and the job asks for 2"),
        (None, "npu:1", "this machine has no devices of kind `npu`, and the job asks for 1"),
        (2, "{kind: gpu, ids: 1-2}", "this machine has 2 devices of kind `gpu`, and the job asks for number 1, 2"),
    ],
)
def test_absent_devices_are_an_error_before_the_start(
    there: int | None, wanted: str, said: str, jobctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobctl.jobspec.deploy.check.local.count_devices", lambda kind: there)
    monkeypatch.setattr(devices, "count_devices", lambda kind: there)
    code, _, err = jobctl(wanted, "up")
    assert (code, said in err, "nothing was changed" in err) == (3, True, True), err
    code, out, _ = jobctl(wanted, "check", "-o", "json")
    assert (code, json.loads(out)["findings"][0]["code"]) == (3, "devices-missing")
    assert not Path("state/jobs/small/host").exists()


@pytest.mark.parametrize("command", ["up", "check"])
def test_devices_that_nobody_counts_are_an_error_where_there_are_none(
    command: str, jobctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "count_devices", lambda kind: None)
    code, _, err = jobctl("gpu", command)
    assert (code, "this machine has no devices of kind `gpu` [devices-missing]" in err) == (3, True), err


def test_devices_that_are_there_are_fit(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobctl.jobspec.deploy.check.local.count_devices", lambda kind: 2)
    code, out, err = jobctl("gpu:2", "check", "-o", "json")
    assert (code, json.loads(out)["findings"][0]["message"]) == (0, "2 of kind `gpu`"), err


BROKEN = "__version__ = '9'\nclass utils:\n    @staticmethod\n    def run_check():\n        raise RuntimeError('no kernel')\n"


def test_a_deep_check_runs_the_framework_s_own_test(jobctl: Any) -> None:
    code, _, err = jobctl("cpu", "check", "--deep")
    assert (code, "python3 cannot import `paddle` [framework-missing]" in err) == (3, True), err
    Path("paddle.py").write_text(BROKEN)
    code, _, err = jobctl("cpu", "check", "--deep")
    assert (code, "RuntimeError: no kernel [framework-broken]" in err) == (3, True), err
    assert jobctl("cpu", "check")[0] == 0  # which asks for nothing of Paddle
    Path("paddle.py").write_text(BROKEN.replace("raise RuntimeError('no kernel')", "pass"))
    code, _, err = jobctl("cpu", "check", "--deep")
    assert (code, "all fit" in err) == (0, True), err


def test_a_machine_without_python_names_nothing_that_has_no_effect_here(
    jobctl: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`container.python` names an interpreter in images: target `local` starts `python3` in any case."""
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    code, _, err = jobctl("cpu", "check", "--deep", "--set", "container.python=other")
    assert (code, "there is no `python3` on the PATH [python-missing]" in err) == (3, True), err
    assert "container.python" not in err


def test_ports_that_another_program_has_are_an_error_before_the_start(jobctl: Any) -> None:
    """`up` would start a launcher, or members of an etcd, and only then find out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = jobctl("cpu", "up", "--set", f"rendezvous.port={port}")
        assert (code, f"port {port} of `rendezvous.port` is taken" in err) == (3, True), err
        assert "nothing was changed" in err
        assert not Path("state/jobs/small/host").exists()
        assert jobctl("cpu", "check")[0] == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_port_of_the_managed_etcd_that_another_program_has_is_an_error(number: int, jobctl: Any) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        managed = f"etcd={{managed: {{replicas: 1, port: {port - number}}}}}"
        code, out, err = jobctl("cpu", "check", "-o", "json", "--set", managed)
        told = [(one["code"], one["message"]) for one in json.loads(out)["findings"] if one["verdict"] == "error"]
        assert (code, told) == (3, [("port-taken", f"port {port} of the managed etcd is taken")]), err
