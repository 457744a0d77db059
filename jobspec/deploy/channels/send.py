"""One message through one channel."""

from __future__ import annotations

from jobctl.jobspec.deploy.channels.command import run
from jobctl.jobspec.deploy.channels.mail import send_mail
from jobctl.jobspec.deploy.channels.webhook import post
from jobctl.jobspec.deploy.model.notification import Channel, DeliveryResult, Notification

_WAYS = {"webhook": post, "command": run, "email": send_mail}


def send(channel: Channel, message: Notification) -> DeliveryResult:
    """Tell `message` through `channel`. Never raises: what went wrong is in the result."""
    try:
        return _WAYS[channel.kind](channel.how, message)
    except Exception as error:  # of a library; its words may quote a secret
        return DeliveryResult(f"it failed ({type(error).__name__})")
