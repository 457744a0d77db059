"""What each kind of webhook gets: body and headers. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.telling.notification import Notification

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Tuple

JSON_TEXT = {"Content-Type": "application/json; charset=utf-8"}
LONGEST_TEXT = 2000  # characters of a text for people: the services cut or refuse longer ones

# Priorities of ntfy: 5 wakes people, 4 makes a sound, 2 does not.
_PRIORITIES = {"failed": 5, "waiting": 5, "hang": 4, "host-lost": 4, "straggler": 3, "succeeded": 3, "recovered": 2}
_TAGS = {
    "failed": "rotating_light",
    "waiting": "raised_hand",
    "hang": "hourglass",
    "host-lost": "electric_plug",
    "straggler": "snail",
    "succeeded": "white_check_mark",
    "recovered": "recycle",
}
_COLOURS = {"failed": "Attention", "waiting": "Warning", "succeeded": "Good", "recovered": "Good"}
TITLES = {
    "failed": "failed",
    "waiting": "waits for a person",
    "hang": "hangs",
    "host-lost": "lost a host",
    "straggler": "has a slow node",
    "succeeded": "succeeded",
    "recovered": "recovered",
    "summary": "has had many events",
    "test": "sends a test message",
}


def title(message: Notification) -> str:
    """Return a message's first line: the job, and what happened to it."""
    return f"{message.job} {TITLES.get(message.event, message.event)}"


def shortened(text: str) -> str:
    """Return a text for people, of at most LONGEST_TEXT characters."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def payload(form: str, message: Notification) -> Tuple[bytes, Dict[str, str]]:
    """Return body and headers of the POST that tells `message` in the format `form`."""
    if form == "ntfy":
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "Title": title(message),
            "Priority": str(_PRIORITIES.get(message.event, 3)),
            "Tags": _TAGS.get(message.event, "bell"),
        }
        return shortened(message.text).encode(), headers
    forms: Dict[str, Callable[[Notification], Dict[str, Any]]] = {"slack": _slack, "teams": _teams}
    body = forms.get(form, Notification.to_json)(message)
    return json.dumps(body, ensure_ascii=False).encode(errors="replace"), JSON_TEXT


def _slack(message: Notification) -> Dict[str, object]:
    # Slack and Mattermost read `&`, `<` and `>` as markup: `<!channel>` in a log line would wake everybody.
    text = shortened(message.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"*{title(message)}*\n{text}"}


def _teams(message: Notification) -> Dict[str, object]:
    heading = {"type": "TextBlock", "text": title(message), "weight": "Bolder", "size": "Medium", "wrap": True}
    colour = _COLOURS.get(message.event)
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {**heading, **({"color": colour} if colour else {})},
            {"type": "TextBlock", "text": _plain(shortened(message.text)), "wrap": True},
        ],
    }
    return {
        "type": "message",
        "attachments": [
            {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        ],
    }


def _plain(text: str) -> str:
    """Return text for a card without what Markdown makes links of: a log line must not lead anywhere."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("\n", "\n\n")
