"""A POST to a webhook, as launchers do it, too."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.deploy.model.notification import DeliveryResult, Notification
from jobctl.jobspec.launcher.telling.webhook import post_to


def post(how: dict[str, Any], message: Notification) -> DeliveryResult:
    """Tell the webhook; it has taken the message if it answers with 2xx."""
    return post_to(str(how["url"]), str(how.get("format", "json")), message)
