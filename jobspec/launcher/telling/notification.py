"""A message about a job: a value. One for all: supervisors tell people, and launchers where no supervisor does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import record

if TYPE_CHECKING:
    from typing import Optional, Tuple

    from jobctl.jobspec.launcher.system.files import Json


@record
class Notification:
    """One message about a job. `id` is the same in each repeat; `covers` are the ids of those that a summary replaces.

    `at` is in seconds since the epoch. `cost` is how many seconds of training a failure has cost so far.
    """

    id: str
    job: str
    run: str
    event: str
    at: float
    generation: Optional[int]
    text: str
    nodes: Tuple[int, ...] = ()
    cost: Optional[float] = None
    covers: Tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Return the body of a webhook of format `json`."""
        from datetime import datetime  # which a launcher that tells nobody does not pay for

        at = datetime.fromtimestamp(self.at).astimezone().isoformat(timespec="milliseconds")
        left_out = () if self.covers else ("covers",)
        return {key: value for key, value in {**self.kept(), "at": at}.items() if key not in left_out}

    def kept(self) -> Json:
        """Return what an outbox keeps of it."""
        return {
            "id": self.id,
            "job": self.job,
            "run": self.run,
            "event": self.event,
            "at": self.at,
            "generation": self.generation,
            "text": self.text,
            "nodes": list(self.nodes),
            "cost_seconds": self.cost if self.cost is None else round(self.cost, 3),
            "covers": list(self.covers),
        }


def id_of_message(*facts: str) -> str:
    """Return the id of a message that tells these facts."""
    from hashlib import sha256  # likewise

    return sha256("\0".join(facts).encode(errors="replace")).hexdigest()[:20]


def mark_of(ident: str, channel: str) -> str:
    """Return by what it is known that a channel (its key) has taken a message of this id."""
    return id_of_message("told", ident, channel)
