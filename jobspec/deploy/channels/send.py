"""One message through one channel."""

from __future__ import annotations

import threading

from jobctl.jobspec.deploy.channels.command import run
from jobctl.jobspec.deploy.channels.mail import send_mail
from jobctl.jobspec.deploy.channels.webhook import post
from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification

_WAYS = {"webhook": post, "command": run, "email": send_mail}
# Seconds for all of it. Webhooks and mail servers have a time-out for each word that they say, and may say many.
LIMITS = {"webhook": 20.0, "command": 70.0, "email": 60.0}

NO_THREAD = "this machine cannot start another thread"


def send(channel: Channel, message: Notification) -> DeliveryResult:
    """Tell `message` through `channel`. Never raises: what went wrong is in the result."""
    found: list[DeliveryResult] = []

    def work() -> None:
        try:
            found.append(_WAYS[channel.kind](channel.how, message))
        except Exception as error:  # of a library; its words may quote a secret
            found.append(DeliveryResult(f"it failed ({type(error).__name__})"))

    limit = LIMITS[channel.kind]
    thread = threading.Thread(target=work, name="notify-channel", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return DeliveryResult(NO_THREAD)
    thread.join(limit)
    return found[0] if found else DeliveryResult(f"it was not done after {limit:g} s")
