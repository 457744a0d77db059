"""What a campaign says of how its nodes were started, without a fleet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fleet.campaign.starts import Starts

NOT_READY = "standby was not ready"


def begun(generation: int, node: int, cold: str | None, began: float = 1.0) -> dict[str, Any]:
    about = {"event": "generation-begun", "began": began, "generation": generation, "node": node}
    return {**about, "standby": cold is None, "cold_because": cold}


def keep(home: Path, node: int, *events: dict[str, Any]) -> None:
    folder = home / f".jobctl/{home.name}/counter/node-{node}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.json").write_text(json.dumps({"version": 1, "events": events}))


def test_each_start_counts_once_with_the_reason_why_it_was_cold(tmp_path: Path) -> None:
    one, two = tmp_path / "h1", tmp_path / "h2"
    first = [begun(1, node, "it is the first start of this launcher") for node in (0, 1)]
    starts = Starts()
    keep(one, 0, first[0], begun(2, 0, None))
    keep(two, 1, first[1], {"event": "node", "generation": 2, "node": 1}, begun(2, 1, NOT_READY))
    starts.look([one, two], "counter")
    keep(one, 0, begun(2, 0, None), begun(3, 0, NOT_READY))  # the oldest is dropped
    keep(two, 1, begun(1, 1, None, began=9.0))  # after a `down` generations begin at 1 again
    starts.look([one, two], "counter")
    assert list(starts.lines()) == [
        "   6  starts of a node: 2 from standby, 4 cold",
        "   2  cold: it is the first start of this launcher",
        "   2  cold: standby was not ready",
    ]


def test_events_that_are_gone_or_cut_off_take_nothing_away(tmp_path: Path) -> None:
    starts = Starts()
    keep(tmp_path, 0, begun(1, 0, None))
    starts.look([tmp_path], "counter")
    (tmp_path / f".jobctl/{tmp_path.name}/counter/node-0/events.json").write_text('{"events": [')
    starts.look([tmp_path, tmp_path / "none"], "counter")
    assert list(starts.lines()) == ["   1  starts of a node: 1 from standby, 0 cold"]
