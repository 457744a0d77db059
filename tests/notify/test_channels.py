"""Each way to tell people, against a real server, a real command or a real mail program."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.channels import command
from jobctl.jobspec.deploy.channels.send import LIMITS, send
from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification
from jobctl.jobspec.deploy.store.processes import start_ticks
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.telling.payloads import payload
from tests.tools.waiting import promptly
from tests.tools.webhook import Webhook, served

MESSAGE = Notification(
    "0123abcd", "demo", "demo-1f", "failed", 1_700_000_000.5, 3, "node 1: <!channel> said [x](y) & died: ü", (1,), 12.0
)


# A shell that waits for a program that hangs, whose number it has written down.
HANGS = ["sh", "-c", "cat > /dev/null; sleep 600 & echo $! > new; mv new pid; wait; true"]


@pytest.fixture
def server() -> Iterator[Webhook]:
    with served(Webhook()) as found:
        yield found


def post(server: Webhook, form: str) -> DeliveryResult:
    return send(Channel("webhook", frozenset(), "webhook", {"url": server.url, "format": form}), MESSAGE)


def test_json(server: Webhook) -> None:
    assert post(server, "json") == DeliveryResult(answer="it answered 200 OK")
    ((path, headers, body),) = server.got
    assert path == "/hook/very-secret"
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    said = json.loads(body)
    assert said.pop("at").startswith("2023-11-1")
    assert said == {
        "id": "0123abcd",
        "job": "demo",
        "run": "demo-1f",
        "event": "failed",
        "generation": 3,
        "text": MESSAGE.text,
        "nodes": [1],
        "cost_seconds": 12.0,
    }


def test_slack_takes_no_markup_from_a_log(server: Webhook) -> None:
    post(server, "slack")
    assert json.loads(server.got[0][2]) == {"text": "*demo failed*\nnode 1: &lt;!channel&gt; said [x](y) &amp; died: ü"}


def test_teams_gets_an_adaptive_card(server: Webhook) -> None:
    post(server, "teams")
    said = json.loads(server.got[0][2])
    (attachment,) = said["attachments"]
    assert (said["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    heading, text = attachment["content"]["body"]
    assert (heading["text"], heading["color"]) == ("demo failed", "Attention")
    assert text["text"] == "node 1: <!channel> said \\[x](y) & died: ü"


@pytest.mark.parametrize(("text", "said"), [("[x](y)", "\\[x](y)"), ("\\[x](y)", "\\\\\\[x](y)"), ("C:\\x", "C:\\\\x")])
def test_a_card_has_no_link_from_a_log(text: str, said: str) -> None:
    """A backslash of the log's own takes the meaning from the one that is put behind it, and a link would begin."""
    (attachment,) = json.loads(payload("teams", changed(MESSAGE, text=text))[0])["attachments"]
    assert attachment["content"]["body"][1]["text"] == said


def test_ntfy_gets_text_and_headers(server: Webhook) -> None:
    post(server, "ntfy")
    _, headers, body = server.got[0]
    assert body.decode() == MESSAGE.text
    assert (headers["Title"], headers["Priority"], headers["Tags"]) == ("demo failed", "5", "rotating_light")


@pytest.mark.parametrize(
    ("answer", "delivery"),
    [
        ((204, {}), DeliveryResult(answer="it answered 204 No Content")),
        ((404, {}), DeliveryResult("it answered 404 Not Found", refused=True)),
        ((500, {}), DeliveryResult("it answered 500 Internal Server Error")),
        ((429, {"Retry-After": "7"}), DeliveryResult("it answered 429 Too Many Requests", wait=7.0)),
        (
            (302, {"Location": "/elsewhere"}),
            DeliveryResult(
                "it answered 302 Found; redirects are not followed: use the URL where it leads", refused=True
            ),
        ),
        ((799, {"Retry-After": "soon"}), DeliveryResult("it answered 799")),
    ],
)
def test_what_a_webhook_answers(server: Webhook, answer: tuple[int, dict[str, str]], delivery: DeliveryResult) -> None:
    server.answer = answer
    assert post(server, "json") == delivery
    assert len(server.got) == 1  # no redirect is followed


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:1/very-secret", "Connection refused"),
        ("http://127.0.0.1:999999/very-secret", ""),
        ("http://127.0.0.1:port/very-secret", "its URL is not valid"),
        ("http:///very-secret", "its URL is not valid"),
        ("http://[::1/very-secret", "its URL is not valid"),
        ("http://ann:very-secret@127.0.0.1:1/", "Connection refused"),
        ("http://nobody.invalid/very-secret", "the name of its server is not known"),
        ("file:///etc/passwd", "its URL does not begin with http:// or https://"),
    ],
)
def test_no_problem_quotes_the_url(url: str, problem: str) -> None:
    delivery = send(Channel("webhook", frozenset(), "webhook", {"url": url}), MESSAGE)
    assert delivery.problem
    assert problem in delivery.problem
    assert "very-secret" not in delivery.problem


def test_https_needs_a_certificate_that_is_trusted(server: Webhook) -> None:
    url = server.url.replace("http:", "https:")
    problem = send(Channel("w", frozenset(), "webhook", {"url": url}), MESSAGE).problem
    assert problem == "it does not speak TLS: is its URL one with http://?"


def test_user_and_password_of_a_url_are_a_login(server: Webhook) -> None:
    url = server.url.replace("http://", "http://ann:p%40ss@")
    assert send(Channel("w", frozenset(), "webhook", {"url": url}), MESSAGE).done
    ((path, headers, _),) = server.got
    assert (path, headers["Authorization"]) == ("/hook/very-secret", "Basic YW5uOnBAc3M=")
    assert headers["Host"] == f"127.0.0.1:{server.server_address[1]}"


class _Rude(socketserver.StreamRequestHandler):
    """What answers a request with what it was told to, and closes the connection."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(self.server.says)  # type: ignore[attr-defined]


def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time; the whole would take days."""
    monkeypatch.setitem(LIMITS, "webhook", 0.2)
    over = threading.Event()

    class Slow(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            over.wait(20)

    with served(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow)) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/very-secret"
        problem = send(Channel("w", frozenset(), "webhook", {"url": url}), MESSAGE).problem
        over.set()
    assert problem == "it was not done after 0.2 s"


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        (b"", "it closed the connection, and gave no answer"),
        (b"SSH-2.0-very-secret\r\n", "what it answered is not HTTP"),
    ],
)
def test_what_is_no_webhook_is_named(says: bytes, problem: str) -> None:
    server: Any = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Rude)
    server.says = says
    with served(server):
        url = f"http://127.0.0.1:{server.server_address[1]}/very-secret"
        assert send(Channel("w", frozenset(), "webhook", {"url": url}), MESSAGE).problem == problem


def test_a_command_is_told_on_its_stdin(tmp_path: Path) -> None:
    script = 'cat > "$1"; echo "$JOBCTL_JOB $JOBCTL_NOTIFY_EVENT $JOBCTL_NOTIFY_ID $PWD" >> "$1"'
    how = {"argv": ["sh", "-c", script, "page", str(tmp_path / "got")], "directory": str(tmp_path)}
    assert send(Channel("c", frozenset(), "command", how), MESSAGE) == DeliveryResult(answer="`sh` ended with code 0")
    body, _, environ = (tmp_path / "got").read_text().rpartition("}")
    assert json.loads(f"{body}}}")["text"] == MESSAGE.text
    assert environ.split() == ["demo", "failed", "0123abcd", str(tmp_path)]


@pytest.mark.parametrize(
    ("argv", "delivery"),
    [
        (["sh", "-c", "exit 3"], DeliveryResult("`sh` ended with code 3", refused=True)),
        (["/no/such/program"], DeliveryResult("cannot run `/no/such/program`: No such file or directory")),
    ],
)
def test_a_command_that_fails(argv: list[str], delivery: DeliveryResult) -> None:
    assert send(Channel("c", frozenset(), "command", {"argv": argv, "directory": "/gone"}), MESSAGE) == delivery


def test_what_a_command_waits_for_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TIMEOUT", 0.5)
    pid, problem = tmp_path / "pid", DeliveryResult("`sh` did not end within 0.5 s")
    while not pid.exists():  # a busy machine may not get there in time
        assert (
            send(Channel("c", frozenset(), "command", {"argv": HANGS, "directory": str(tmp_path)}), MESSAGE) == problem
        )
    promptly(lambda: start_ticks(int(pid.read_text())) is None, 10.0)


ASIDE = """
import os, signal, sys, threading, time
from jobctl.jobspec.deploy.channels.send import send
from jobctl.jobspec.deploy.model.notification import Channel, Notification
channel = Channel("c", frozenset(), "command", {"argv": sys.argv[2:], "directory": "."})
message = Notification("1", "demo", "demo-1", "failed", 1.0, None, "")
threading.Thread(target=send, args=(channel, message), daemon=True).start()
while not os.path.exists("pid"):
    time.sleep(0.01)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_command_ends_with_the_process_that_runs_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ASIDE, "", *HANGS], cwd=tmp_path, check=True)
    promptly(lambda: start_ticks(int((tmp_path / "pid").read_text())) is None)


def test_a_command_ends_where_the_process_that_runs_it_is_killed(tmp_path: Path) -> None:
    argv = ["sh", "-c", "echo $$ > new; mv new pid; exec sleep 600"]
    subprocess.run([sys.executable, "-c", ASIDE, "killed", *argv], cwd=tmp_path, check=False)
    promptly(lambda: start_ticks(int((tmp_path / "pid").read_text())) is None)


def test_sendmail_gets_a_whole_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/argv\ncat > {tmp_path}/mail\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    how = {"to": ["ann@example.com", "bob"], "sender": "jobs@example.com", "smtp": None}
    assert send(Channel("m", frozenset(), "email", how), MESSAGE).done
    assert (tmp_path / "argv").read_text().split() == ["-t", "-i"]
    mail = message_from_bytes((tmp_path / "mail").read_bytes())
    assert {name: mail[name] for name in ("To", "From", "Subject", "Message-ID")} == {
        "To": "ann@example.com, bob",
        "From": "jobs@example.com",
        "Subject": "[jobctl] demo failed",
        "Message-ID": "<0123abcd@demo.jobctl>",
    }
    assert MESSAGE.text in mail.get_payload(decode=True).decode()


class _Smtp(socketserver.StreamRequestHandler):
    """As much of a mail server as takes one mail."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        data: list[bytes] | None = None
        for line in self.rfile:
            if data is not None:
                data.append(line)
                if line == b".\r\n":
                    self.server.got.append(b"".join(data))  # type: ignore[attr-defined]
                    self.wfile.write(b"250 taken\r\n")
                    data = None
                continue
            word = line.split()[0].upper()
            self.server.said.append(line)  # type: ignore[attr-defined]
            if word == b"DATA":
                data = []
            answers = {b"DATA": b"354 go on", b"AUTH": b"535 5.7.8 no", b"QUIT": b"221 bye"}
            answers[b"RCPT"] = self.server.rcpt  # type: ignore[attr-defined]
            extensions = b"250-here\r\n250 AUTH PLAIN\r\n" if word == b"EHLO" else None
            self.wfile.write(extensions or answers.get(word, b"250 ok") + b"\r\n")


@pytest.fixture
def smtp() -> Iterator[Any]:
    server: Any = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Smtp)
    server.got, server.said, server.rcpt = [], [], b"250 ok"
    with served(server) as found:
        yield found


def mail_by(smtp: Any, **more: object) -> DeliveryResult:
    by = {"host": "127.0.0.1", "port": smtp.server_address[1], "security": "none", "user": None, "password": None}
    how = {"to": ["ann@example.com"], "sender": "jobs@example.com", "smtp": {**by, **more}}
    return send(Channel("m", frozenset(), "email", how), MESSAGE)


def test_a_mail_server_takes_a_mail(smtp: Any) -> None:
    assert mail_by(smtp) == DeliveryResult(answer="127.0.0.1 took it")
    assert b"Subject: [jobctl] demo failed" in smtp.got[0]
    assert b"rcpt TO:<ann@example.com>\r\n" in smtp.said


def test_a_mail_server_that_refuses_the_password(smtp: Any) -> None:
    delivery = mail_by(smtp, user="jobs", password="very-secret")
    assert delivery.problem == "127.0.0.1 refused the user or the password (code 535)"


@pytest.mark.parametrize(("answer", "refused"), [(b"550 nobody of that name", True), (b"450 try later", False)])
def test_a_mail_server_that_refuses_each_address(smtp: Any, answer: bytes, refused: bool) -> None:
    smtp.rcpt = answer
    problem = f"127.0.0.1 refused each address (code {answer[:3].decode()})"
    assert mail_by(smtp) == DeliveryResult(problem, refused)


def test_a_mail_server_without_encryption_gets_no_mail_that_needs_it(smtp: Any) -> None:
    delivery = mail_by(smtp, security="starttls", user="jobs", password="very-secret")
    assert delivery.problem == "127.0.0.1 did not take the mail (SMTPNotSupportedError)"
    assert smtp.got == []
    assert not [said for said in smtp.said if said.startswith(b"AUTH")]
