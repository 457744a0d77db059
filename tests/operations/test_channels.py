"""Who is told of a job: the spec or else the configuration, with the values of secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.reporter import Silent
from jobctl.jobspec.operations.resolve.channels import channels_of, environ_of_job
from jobctl.jobspec.operations.resolve.job import Compiled
from jobctl.jobspec.spec.load import load_text

URL = "https://hooks.example.com/very-secret"


class Warned(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def compiled(tmp_path: Path, text: str) -> Compiled:
    path = tmp_path / "job.yaml"
    loaded = load_text(path, f"name: demo\nframework: torch\nmodule: train\n{text}", environ={})
    assert loaded.spec is not None, loaded.diagnostics
    return Compiled(
        loaded.spec, tmp_path, path, target="local", hosts=(), hosts_path=None, on=None, exclude=None, warnings=()
    )


def channels(tmp_path: Path, text: str, reporter: Any = None, **environ: str) -> list[tuple[str, str, dict[str, Any]]]:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), **environ}
    found = channels_of(compiled(tmp_path, text), environ, reporter or Warned())
    return [(channel.key, ",".join(sorted(channel.on)), channel.how) for channel in found]


def configure(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobctl").mkdir()
    (tmp_path / "jobctl" / "config.yaml").write_text(text)


HOOK = "notify: [{on: [failed], webhook: HOOK, format: ntfy}]\n"


def test_a_webhook_is_named_by_a_variable_or_a_secret_or_a_file(tmp_path: Path) -> None:
    found = [("webhook HOOK (ntfy)", "failed", {"url": URL, "format": "ntfy"})]
    assert channels(tmp_path, HOOK, HOOK=URL) == found
    assert channels(tmp_path, f"{HOOK}secrets: {{HOOK: {{env: OTHER}}}}", OTHER=URL) == found
    (tmp_path / "hook").write_text(f"{URL}\n")
    assert channels(tmp_path, HOOK.replace("HOOK", "{file: hook}")) == [
        ("webhook hook (ntfy)", "failed", {"url": URL, "format": "ntfy"})
    ]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "secret `HOOK` of `notify`: the environment has no `HOOK`"),
        ({"HOOK": "very-secret"}, "`notify`: the value of `HOOK` is not the URL of a webhook"),
        ({"HOOK": "file:///etc/passwd"}, "`notify`: the value of `HOOK` is not the URL of a webhook"),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_without_its_value(
    tmp_path: Path, environ: dict[str, str], said: str
) -> None:
    with pytest.raises(Refused) as refused:
        channels(tmp_path, HOOK, **environ)
    assert str(refused.value) == said


def test_several_items_for_one_channel_are_one(tmp_path: Path) -> None:
    text = "notify: [{on: failed, webhook: HOOK}, {on: [hang, failed], webhook: HOOK}]"
    assert channels(tmp_path, text, HOOK=URL) == [
        ("webhook HOOK (json)", "failed,hang", {"url": URL, "format": "json"})
    ]


def test_mail_through_another_server_is_another_channel(tmp_path: Path) -> None:
    """The same people, whom one of the two may not reach."""
    mail = "{{on: {on}, email: {{to: a@b, from: f@e, smtp: {{host: {host}}}}}}}"
    items = [mail.format(on=on, host=host) for on, host in (("failed", "c"), ("hang", "d"), ("waiting", "d"))]
    found = channels(tmp_path, f"notify: [{', '.join(items)}]")
    assert [(key, on, how["smtp"]["host"]) for key, on, how in found] == [
        ("mail to a@b", "failed", "c"),
        ("mail to a@b from f@e through d", "hang,waiting", "d"),
    ]


def test_mail_and_commands(tmp_path: Path) -> None:
    text = (
        "notify:\n- {command: [page, --key, k1]}\n"
        "- {on: failed, email: {to: a@b, smtp: {host: c, user: d@e, password: PASSWORD}}}\n"
    )
    (command, _, run), (mail, _, how) = channels(tmp_path, text, PASSWORD="very-secret")
    assert command.startswith("command page (")
    assert "k1" not in command
    assert run == {"argv": ["page", "--key", "k1"], "directory": str(tmp_path)}
    smtp = {"host": "c", "port": None, "security": "starttls", "user": "d@e", "password": "very-secret"}
    assert (mail, how) == ("mail to a@b", {"to": ["a@b"], "sender": "d@e", "smtp": smtp})


def test_the_configuration_counts_for_jobs_that_say_nothing(tmp_path: Path) -> None:
    configure(tmp_path, "notify: [{webhook: ALL}]\n")
    assert channels(tmp_path, "", ALL=URL) == [
        ("webhook ALL (json)", "failed,succeeded,waiting", {"url": URL, "format": "json"})
    ]
    assert channels(tmp_path, "notify: []", ALL=URL) == []
    assert [key for key, *_ in channels(tmp_path, HOOK, ALL=URL, HOOK=URL)] == ["webhook HOOK (ntfy)"]


def test_a_secret_of_the_configuration_that_is_missing_is_a_warning(tmp_path: Path) -> None:
    configure(tmp_path, "notify:\n- {webhook: ALL}\n- {command: page}\n")
    reporter = Warned()
    assert [how["argv"] for _, _, how in channels(tmp_path, "", reporter)] == [["page"]]
    (warning,) = reporter.warnings
    assert warning.startswith(
        f"{tmp_path}/jobctl/config.yaml:1: secret `ALL` of `notify`: the environment has no `ALL`"
    )


def test_the_processes_of_a_job_do_not_get_what_only_jobctl_needs(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOOK": URL, "OTHER": "x"}
    assert environ_of_job(compiled(tmp_path, HOOK), environ) == {"XDG_CONFIG_HOME": str(tmp_path), "OTHER": "x"}
    assert environ_of_job(compiled(tmp_path, f"{HOOK}secrets: [HOOK]"), environ) == environ


def test_a_configuration_with_errors_blocks_no_job(tmp_path: Path) -> None:
    configure(tmp_path, "notify: [{webhook: ALL}]\nnonsense: 1\n")
    reporter = Warned()
    assert channels(tmp_path, "", reporter, ALL=URL) == []
    assert len(reporter.warnings) == 1
    assert f"{tmp_path}/jobctl/config.yaml" in reporter.warnings[0]
    assert channels(tmp_path, HOOK, reporter, HOOK=URL) != []
    assert len(reporter.warnings) == 1


def test_only_a_spec_allows_a_url_on_the_hosts(tmp_path: Path) -> None:
    """Two items of one webhook are one channel; the containers of a job know nothing of the configuration."""
    twice = "notify: [{on: [failed], webhook: HOOK}, {on: [hang], webhook: HOOK, from_hosts: true}]\n"
    how = {"url": URL, "format": "json", "from_hosts": True}
    assert channels(tmp_path, twice, HOOK=URL) == [("webhook HOOK (json)", "failed,hang", how)]
    configure(tmp_path, "notify: [{webhook: HOOK, from_hosts: true}]\n")
    reporter = Warned()
    ((_, _, found),) = channels(tmp_path, "", reporter, HOOK=URL)
    assert found == {"url": URL, "format": "json"}
    (warning,) = reporter.warnings
    assert "config.yaml:1: `from_hosts` has no effect in the configuration" in warning
