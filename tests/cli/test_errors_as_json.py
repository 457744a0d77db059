"""Errors with `-o json`: one document on stdout, and what it says."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer import Exit

from jobctl.jobspec.deploy.host.lock import NotLocked
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import Result, problem
from jobctl.jobspec.operations.errors import HostsFailed
from jobctl.options import Format
from jobctl.views.failure import command, error_json
from tests.cli.conftest import SPEC

# Errors where JSON was asked for.

SAYS = ("code", "exit_code", "hint", "message")


@pytest.mark.parametrize(
    ("argv", "exit_code", "code", "message"),
    [
        (("status", "nobody", "-o", "json"), 2, "usage", "nobody"),
        (("status", "--no-such-option", "-o", "json"), 2, "usage", "No such option: --no-such-option"),
        (("status", "-ojson", "--hosts"), 2, "usage", "'--hosts' requires an argument"),
        (("status", "-ojson", "--color"), 2, "usage", "Invalid value for '--color'"),
        (("wait", "--output=json", "one", "two"), 2, "usage", "unexpected extra argument"),
        (("logs", "-fo", "json", "--tail", "many"), 2, "usage", "Invalid value for '--tail' / '-n'"),
        (("logs", "-n", "many", "-o", "json"), 2, "usage", "Invalid value for '--tail' / '-n'"),
        (("plan", "gone.yaml", "-o", "json"), 2, "invalid-spec", "the spec is not valid"),
        (("status", "gone.yaml", "-o", "json"), 2, "invalid-spec", "the spec is not valid"),
        (("check", "--hosts", "gone.txt", "-o", "json"), 2, "invalid-spec", "the spec is not valid"),
        (("list", "--hosts", "gone.txt", "-o", "json"), 2, "invalid-hosts", "the hosts file is not valid"),
    ],
)
def test_an_error_is_one_json_document(
    jobctl: Any, argv: tuple[str, ...], exit_code: int, code: str, message: str
) -> None:
    ran = jobctl(*argv)
    (line,) = ran.out.splitlines()
    error = json.loads(line)["error"]
    assert (ran.code, sorted(error)) == (exit_code, list(SAYS))
    assert (error["exit_code"], error["code"], message in error["message"]) == (exit_code, code, True), error


def test_an_error_in_json_has_what_diagnostics_say(jobctl: Any) -> None:
    Path("job.yaml").write_text(SPEC + "nodse: 2\n")
    ran = jobctl("plan", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.err, document["valid"], document["error"]["code"]) == ("", False, "invalid-spec")
    assert [diagnostic["code"] for diagnostic in document["diagnostics"]] == ["unknown-key"]


def test_jobs_whose_specs_cannot_be_read_say_why_in_json(jobctl: Any) -> None:
    Path("nameless.yaml").write_text("nmae: x\n")
    ran = jobctl("down", "nobody", "nameless.yaml", "gone.yaml", "-o", "json")
    of_all = json.loads(ran.out)["jobs"]
    assert [job["error"]["code"] for job in of_all] == ["usage", "invalid-spec", "invalid-spec"]
    assert ["nobody" in job["error"]["message"] for job in of_all] == [True, False, False]
    assert [[one["code"] for one in job.get("diagnostics", ())] for job in of_all] == [
        [],
        ["missing-key", "nothing-to-run", "unknown-key"],
        ["no-such-file"],
    ]


@pytest.mark.parametrize(
    "refused",
    [RuntimeError("can't start new thread"), BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))],
    ids=["thread", "process"],
)
def test_a_limit_of_processes_is_no_bug(jobctl: Any, monkeypatch: pytest.MonkeyPatch, refused: Exception) -> None:
    def fails(*args: object) -> None:
        raise refused

    monkeypatch.setattr("jobctl.jobspec.operations.resolve.running.name_of", fails)
    ran = jobctl("status", "demo", "-o", "json")
    error = json.loads(ran.out)["error"]
    assert (ran.code, error["code"], "ulimit -u" in error["hint"]) == (2, "processes", True), error


def test_a_bug_is_told_as_json_too(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("jobctl.jobspec.operations.resolve.running.name_of", fails)
    ran = jobctl("status", "x", "-o", "json")
    assert (ran.code, json.loads(ran.out)["error"]["code"]) == (70, "bug")


def test_each_host_that_failed_stands_beside_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
    from jobctl.jobspec.deploy.model.errors import HostError
    from jobctl.options import Format
    from jobctl.views.failure import command

    @command
    def fails(output: Format) -> None:
        raise AllUnreachable({"h1": HostError("h1", "no-route", "no way", "a hint")}, None)  # type: ignore[arg-type]

    with pytest.raises(Exit) as ended:
        fails(output=Format.json)
    assert ended.value.exit_code == 3
    assert json.loads(capsys.readouterr().out) == {
        "error": {"code": "unreachable", "message": "no host answers", "hint": None, "exit_code": 3},
        "failed_hosts": [{"host": "h1", "code": "no-route", "message": "h1: no way", "hint": "a hint"}],
    }


def test_no_second_document_follows_one_that_tells_of_the_failure(capsys: pytest.CaptureFixture[str]) -> None:
    from jobctl import console
    from jobctl.options import Format
    from jobctl.views.failure import Failed, command

    @command
    def fails(output: Format) -> None:
        console.out_json({"down": False})
        raise Failed("", 4)

    with pytest.raises(Exit):
        fails(output=Format.json)
    assert json.loads(capsys.readouterr().out) == {"down": False}


@pytest.mark.parametrize("command", ["plan", "up --dry-run", "pull small", "logs small"])
def test_a_report_names_the_hosts_that_did_not_do_their_part(
    jobctl: Any, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobctl.jobspec.deploy.model.errors import HostError
    from jobctl.jobspec.deploy.targets.fleet_deployer import FleetDeployer

    (Path("state") / "jobs" / "small").mkdir(parents=True)
    silent = {host: HostError(host, "no-route", "no way", "a hint") for host in ("h1", "h2")}
    monkeypatch.setattr(FleetDeployer, "failures", property(lambda self: silent))
    monkeypatch.setattr("jobctl.jobspec.operations.inspect.pull.pull_job", lambda handle, into: {"logs": 1})
    empty = SimpleNamespace(lines=lambda final: (), problems={})
    monkeypatch.setattr("jobctl.jobspec.operations.inspect.logs.open_logs", lambda handle, choice: empty)
    ran = jobctl(*command.split(), "-o", "json")
    failed = [{"host": host, "code": "no-route", "message": f"{host}: no way", "hint": "a hint"} for host in silent]
    assert (ran.code, json.loads(ran.out)["failed_hosts"]) == (4, failed)


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_of_one_host_names_it(wrapped: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as one that cannot take the job's lock."""
    silent = HostError("a", "silent", "cannot lock /w/job/lock", "is its disk there?")

    @command
    def fails(output: Format) -> None:
        if wrapped:
            raise HostsFailed(silent.message, silent.hint) from silent
        raise silent

    with pytest.raises(Exit):
        fails(output=Format.json)
    told = {"code": "silent", "message": "a: cannot lock /w/job/lock", "hint": "is its disk there?"}
    assert json.loads(capsys.readouterr().out) == {
        "error": {**told, "exit_code": 3},
        "failed_hosts": [{"host": "a", **told}],
    }


def test_where_no_host_can_be_locked_each_is_named_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was changed: exit code 3."""
    refused = Result(1, b"", b"lock: Read-only file system")

    @command
    def fails() -> None:
        raise NotLocked({host: problem(host, "lock /w/lock", refused) for host in ("a", "b")})

    with pytest.raises(Exit) as ended:
        fails()
    cause = "cannot lock /w/lock: lock: Read-only file system"
    hint = "hint: make the file system writable again, or choose another directory with `dir=` in the hosts file"
    again = "hint: repeat the command once that is fixed on one of them"
    told = [f"error: a: {cause}", hint, f"error: b: {cause}", hint, "error: no host could be locked", again]
    assert (ended.value.exit_code, capsys.readouterr().err.splitlines()) == (3, told)


def test_an_error_names_the_hosts_that_failed() -> None:
    """Also if the error has them as `failures` alone, and not among its details."""
    silent = HostError("a", "unreachable", "does not answer", "is sshd up?")
    told = error_json(HostsFailed("no host answers", failures={"a": silent}))
    row = {"host": "a", "code": "unreachable", "message": "a: does not answer", "hint": "is sshd up?"}
    assert told["failed_hosts"] == [row]
