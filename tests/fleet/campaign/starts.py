"""How the nodes of a campaign were started, as their launchers write it down: from standby, or cold and why."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Starts:
    """Each start of a node once, by the generation (with when the job was brought up) and the node; why it was cold, or None."""

    found: dict[tuple[float, int, int], str | None] = field(default_factory=dict)

    def look(self, homes: list[Path], job: str) -> None:
        """Take over what the launchers of a job have written on hosts since. They keep their last events only."""
        for home in homes:
            for path in home.glob(f".jobctl/*/{job}/node-*/events.json"):
                for event in events_in(path):
                    if event.get("event") == "generation-begun":
                        about = event["began"], event["generation"], event["node"]
                        self.found[about] = None if event["standby"] else event["cold_because"]

    def lines(self) -> Iterator[str]:
        """Yield how many starts were from standby, and how many were cold, for each reason."""
        cold = collections.Counter(why for why in self.found.values() if why is not None)
        warm = len(self.found) - cold.total()
        yield f"{len(self.found):4}  starts of a node: {warm} from standby, {cold.total()} cold"
        for why, times in sorted(cold.items(), key=lambda one: (-one[1], one[0])):
            yield f"{times:4}  cold: {why}"


def events_in(path: Path) -> list[dict[str, Any]]:
    """Return the events of a node; none where a command has removed them, or a full disk has cut them off."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return []
    return [event for event in kept["events"] if isinstance(event, dict)]
