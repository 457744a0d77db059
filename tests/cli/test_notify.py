"""`jobctl notify`: who is told, and a test message that comes at once or says why not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.notification import Channel
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.processes import start_ticks
from jobctl.jobspec.notify.channels import keep_channels
from tests.cli.conftest import SPEC
from tests.tools.waiting import eventually
from tests.tools.webhook import Webhook, served

SECRET = "very-secret"
HOOK = "notify: [{on: [failed], webhook: HOOK}, {on: [hang], command: [/bin/false]}]\n"


@pytest.fixture
def webhook(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with served(Webhook()) as server:
        monkeypatch.setenv("HOOK", server.url)
        yield server


def told(text: str) -> None:
    Path("job.yaml").write_text(SPEC + text)


def test_a_test_reaches_each_and_says_what_each_answered(jobctl: Any, webhook: Webhook) -> None:
    told(HOOK)
    ran = jobctl("notify", "--test")
    hook, command = ran.out.splitlines()
    assert hook.startswith("ok      webhook HOOK (json): it answered 200 OK (")
    assert command.startswith("FAILED  command /bin/false (")
    assert "`/bin/false` ended with code 1" in command
    assert (ran.code, ran.err) == (4, "error: 1 of 2 did not take the test message\n")
    (message,) = webhook.messages
    assert (message["event"], message["job"], message["nodes"]) == ("test", "small", [])
    assert message["text"] == (
        "This is a test by `jobctl notify --test`: messages of job `small` arrive here. Nothing has happened."
    )


@pytest.mark.parametrize(("answer", "code"), [(204, 0), (403, 3)])
def test_the_exit_code_says_whether_it_works(jobctl: Any, webhook: Webhook, answer: int, code: int) -> None:
    told("notify: [{webhook: HOOK, format: slack}]\n")
    webhook.answer = (answer, {})
    ran = jobctl("notify", "--test", "-o", "json")
    assert ran.code == code
    (channel,) = json.loads(ran.out)["channels"]
    assert (channel["on"], channel["test"]["delivered"]) == (["failed", "succeeded", "waiting"], code == 0)
    assert channel["test"]["answer" if code == 0 else "problem"].startswith(f"it answered {answer} ")
    assert SECRET not in ran.out + ran.err


def test_a_server_that_is_not_there_is_told_without_its_url(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told("notify: [{webhook: HOOK}]\n")
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:1/{SECRET}")
    ran = jobctl("notify", "--test")
    assert (ran.code, SECRET in ran.out + ran.err) == (3, False)
    assert "FAILED  webhook HOOK (json): Connection refused" in ran.out


def test_a_secret_that_is_missing_is_told_as_up_would(jobctl: Any) -> None:
    told("notify: [{webhook: HOOK}]\n")
    ran = jobctl("notify", "--test")
    assert (ran.code, ran.out) == (2, "")
    assert "HOOK" in ran.err


def test_ctrl_c_waits_for_nobody_who_has_not_taken_the_test(jobctl: Any) -> None:
    told("notify: [{on: [failed], command: [sh, -c, 'echo $$$$ > new; mv new pid; exec sleep 600']}]\n")
    with subprocess.Popen([sys.executable, "-m", "jobctl", "notify", "--test"]) as process:
        try:
            eventually(Path("pid").exists)
            process.send_signal(signal.SIGINT)
            assert process.wait(20.0) == 130  # a command has 60 s
        finally:
            process.kill()
    eventually(lambda: start_ticks(int(Path("pid").read_text())) is None, 10.0)


def test_without_a_spec_the_configuration_counts(jobctl: Any, webhook: Webhook) -> None:
    os.unlink("job.yaml")
    folder = Path("config/jobctl")
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("notify: [{on: [failed], webhook: HOOK}]\n")
    assert jobctl("notify").out.splitlines() == ["TOLD OF  BY", "failed   webhook HOOK (json)"]
    assert webhook.messages == []  # nothing is sent without --test
    assert jobctl("notify", "--test").code == 0
    (message,) = webhook.messages
    assert "messages of your jobs arrive here" in message["text"]


def test_nobody_to_tell(jobctl: Any) -> None:
    shown, tested = jobctl("notify"), jobctl("notify", "--test")
    assert (shown.code, shown.out, tested.code) == (0, "", 2)
    assert "notifies nobody" in shown.err
    assert "no test was sent" in tested.err


def test_a_job_that_is_up_tells_as_up_has_read_it_and_what_waits(jobctl: Any, webhook: Webhook) -> None:
    job = JobDir(Path("state/jobs/small").absolute())
    job.create()
    how = {"url": webhook.url, "format": "json"}
    keep_channels(job, "small-1", (Channel("webhook OLD (json)", frozenset({"failed"}), "webhook", how),))
    told(HOOK)
    (row,) = jobctl("notify", "small").out.splitlines()[1:]
    assert row.split() == ["failed", "webhook", "OLD", "(json)", "0", "-"]
    assert jobctl("notify", "small", "--test").code == 0
    assert len(webhook.messages) == 1
    assert events.read(job.events) == ([], 0)  # a test is no part of the job's story


def test_a_job_that_is_up_and_tells_nobody_needs_no_spec_any_more(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `up` has read counts, and not what is set in this shell."""
    told('env: {A: "${A:?no A}"}\n')
    monkeypatch.setenv("A", "1")
    assert jobctl("up", "--no-supervise").code == 0
    monkeypatch.delenv("A")
    shown = jobctl("notify", "small")
    assert (shown.code, shown.out) == (0, "")
    assert "notifies nobody" in shown.err
    assert jobctl("down", "small").code == 0
