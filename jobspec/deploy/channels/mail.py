"""Mail, by this machine's sendmail or by a mail server."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.model.notification import DeliveryResult, Notification
from jobctl.jobspec.deploy.transport.descriptors import for_child
from jobctl.jobspec.launcher.telling.payloads import shortened, title

if TYPE_CHECKING:
    from email.message import EmailMessage

TIMEOUT = 30.0  # seconds that a mail server, or sendmail, gets
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def send_mail(how: dict[str, Any], message: Notification) -> DeliveryResult:
    """Mail the message; it is taken if sendmail or the server accepts it for all addresses."""
    smtp = how.get("smtp")
    mail = compose(how, message)
    return _by_server(smtp, mail) if isinstance(smtp, dict) else _by_sendmail(mail)


def compose(how: dict[str, Any], message: Notification) -> EmailMessage:
    """Return the mail. A repeat has the same Message-ID, by which mail programs know it."""
    from email.message import EmailMessage
    from email.utils import formatdate

    mail = EmailMessage()
    mail["To"] = ", ".join(str(address) for address in how.get("to", ()))
    mail["From"] = str(how.get("sender"))
    mail["Subject"] = f"[jobctl] {title(message)}"
    mail["Date"] = formatdate(message.at, localtime=True)
    mail["Message-ID"] = f"<{message.id}@{message.job}.jobctl>"
    mail["Auto-Submitted"] = "auto-generated"
    lines = [shortened(message.text), "", f"job {message.job}, run {message.run}, event {message.event}"]
    lines += [f"generation {message.generation}"] if message.generation is not None else []
    mail.set_content("\n".join(lines).encode(errors="replace").decode() + "\n")
    return mail


def _by_sendmail(mail: EmailMessage) -> DeliveryResult:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/lib"))
    program = shutil.which("sendmail", path=path)
    if program is None:
        return DeliveryResult("this machine has no `sendmail`: install one, or name a mail server in `email.smtp`")
    argv = [program, "-t", "-i"]
    try:
        done = subprocess.run(
            argv,
            input=bytes(mail),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
            preexec_fn=for_child(),
        )
    except subprocess.TimeoutExpired:
        return DeliveryResult(f"`sendmail` did not end within {TIMEOUT:g} s")
    except OSError as error:
        return DeliveryResult(f"cannot run `sendmail`: {error.strerror}")
    if done.returncode:
        return DeliveryResult(f"`sendmail` ended with code {done.returncode}")
    return DeliveryResult(answer="`sendmail` took it, and delivers it by itself")


def _by_server(smtp: dict[str, Any], mail: EmailMessage) -> DeliveryResult:
    import smtplib
    import ssl

    security, host = str(smtp.get("security")), str(smtp.get("host"))
    port = int(smtp.get("port") or _PORTS.get(security, 587))
    context = ssl.create_default_context()
    try:
        if security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=TIMEOUT, context=context)
        else:
            server = smtplib.SMTP(host, port, timeout=TIMEOUT)
        with server:
            if security == "starttls":
                server.starttls(context=context)
            if smtp.get("user"):
                server.login(str(smtp["user"]), str(smtp.get("password")))
            refused = server.send_message(mail)
    except smtplib.SMTPAuthenticationError as error:
        return DeliveryResult(f"{host} refused the user or the password (code {error.smtp_code})")
    except smtplib.SMTPRecipientsRefused as error:
        code = min(code for code, _ in error.recipients.values())  # one that may take it later counts
        return DeliveryResult(f"{host} refused each address (code {code})", refused=code >= 500)
    except smtplib.SMTPResponseException as error:
        return DeliveryResult(f"{host} answered with code {error.smtp_code}", refused=error.smtp_code >= 500)
    except smtplib.SMTPException as error:
        return DeliveryResult(f"{host} did not take the mail ({type(error).__name__})")
    except OSError as error:
        return DeliveryResult(f"{host}: {error.strerror or type(error).__name__}")
    if not refused:
        return DeliveryResult(answer=f"{host} took it")
    # The others have it: a repeat would reach them again.
    return DeliveryResult(answer=f"{host} took it, but not for {', '.join(sorted(refused))}")
