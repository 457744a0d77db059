"""A job of a campaign whose recovery is timed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from tests.fleet.campaign.campaign import Campaign
from tests.fleet.host import Host
from tests.tools.waiting import eventually

IMPORTED = 900.0  # seconds: a standby imports when nobody else wants the cores
STOPS = 1.0  # seconds in which a rank that is to stand still has made its last step, and its launcher has seen it


class Recovering(Campaign):
    """A job on some hosts, with one to spare unless it is elastic. Times are seconds since the epoch."""

    def begin(self, *args: str) -> None:
        """Bring the job up; its generations begin with 1 again."""
        for path in self.checkpoints.glob("first-*"):
            path.unlink()
        up = self.up(*args)
        if up.returncode:
            sys.exit(up.stderr)
        self.trains_on()

    # What happens to it: each returns when that was.

    def victim(self) -> Host:
        """Return the host of node 1."""
        return next(host for host, node in self.homes() if node == 1)

    def struck(self, fault: Callable[[Host, int], None]) -> float:
        """Let something happen to node 1."""
        host, began = self.victim(), time.time()
        fault(host, 1)
        return began

    def commanded(self, *args: str) -> float:
        """Have a user type a command; its own start counts."""
        began = time.time()
        done = subprocess.run(
            [sys.executable, "-m", "jobctl", *args], cwd=self.code, env=self.environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return began

    def stands_still(self, hang_timeout: int) -> float:
        """Have node 1 make no step more; return when `hang_timeout` was over after the last one that a launcher has seen."""
        number, stop = self.generation(), self.checkpoints / "stop-1"
        stop.touch()
        try:
            time.sleep(STOPS)
            last = [report["progress_at"] for report in self.reports() if report["progress_at"] is not None]
            eventually(partial(self.moved_on, number))
        finally:
            stop.unlink()
        return float(min(last)) + hang_timeout

    # What became of it.

    def first_step(self, generation: int) -> float:
        """Wait for the first step of a generation, or of one that soon replaces it, and return when it was made."""
        paths = [self.checkpoints / f"first-{number}" for number in range(generation, generation + 3)]
        return float(eventually(lambda: next((path.read_text() for path in paths if path.exists()), "")))

    def last_step(self, generation: int) -> float:
        """Return when rank 0 of a generation that is over has made its last step: it wrote its number down."""
        host = next(host for host, node in self.homes() if node == 0)
        steps = host.home / f".jobctl/{host.name}/{self.name}/node-0/progress/{generation}/0"
        return steps.stat().st_mtime

    def begun(self) -> float:
        """Return when the last node of the newest generation began to start its processes."""
        return max(float(report["started_at"]) for report in eventually(self.reports))

    def cold_starts(self) -> list[str]:
        """Return why nodes of the newest generation were started without a standby, a reason for each."""

        def known() -> list[dict[str, Any]]:
            ways = [report["start"] for report in self.reports()]
            return ways if ways and all(way is not None for way in ways) else []

        return [way["cold_because"] for way in eventually(known) if not way["standby"]]

    def events(self) -> list[dict[str, Any]]:
        """Return the events."""
        return [json.loads(line) for line in self.run("events", "-o", "json").stdout.splitlines()]

    def told(self, since: float, words: str) -> float:
        """Return when an event after `since` said so."""

        def look() -> float:
            for event in self.events():
                at = datetime.fromisoformat(str(event["time"])).timestamp()
                if at >= since and words in str(event["message"]):
                    return at
            return 0.0

        return eventually(look)

    def followed(self, since: float) -> float:
        """Return when a supervisor that began after `since` knew for the first time how far all nodes are."""
        path = self.directory / "state/jobs/counter/progress.jsonl"

        def look() -> float:
            times = (float(json.loads(line)["at"]) for line in path.read_text().splitlines())
            return next((at for at in times if at >= since), 0.0)

        return eventually(look)

    # Its standby.

    def has_standby(self) -> bool:
        """Say whether all nodes have a standby that is ready. Exits where one is off."""
        found = [report["standby"] for report in self.reports()]
        if any(one["state"] == "off" for one in found):
            sys.exit(f"standby is off: {found}")
        return found != [] and all(one["state"] == "ready" for one in found)

    def wait_for_standby(self) -> float:
        """Wait until all nodes have a standby that is ready, and return when that was seen."""
        eventually(self.has_standby, IMPORTED)
        return time.time()

    def is_warm(self) -> bool:
        """Say whether the spare is ready, and all nodes are as far as they can be."""
        state = self.status()
        return all(
            one["state"] != "warming" for one in (*state.get("spares", ()), *(n["standby"] for n in state["nodes"]))
        )
