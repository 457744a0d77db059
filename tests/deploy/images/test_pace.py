"""Hosts that are slow while they hand an image on: whom jobctl moves to the end, in figures and in a whole transfer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host import handing_on, pace
from jobctl.jobspec.deploy.host.chain import Chain
from jobctl.jobspec.deploy.host.handing_on import HandingOn
from jobctl.jobspec.deploy.host.pace import Pace
from jobctl.jobspec.deploy.host.scripts import HAND_ON, joined
from tests.deploy.images.handing import Played

MB = 1 << 20


class Line:
    """Hosts h2, h3 … behind h1, which has all. `rate` says how many bytes come over a link within a look."""

    def __init__(self, count: int, rate: Callable[[str, str], int]) -> None:
        self.chain = Chain("h1", [f"h{number}" for number in range(2, count + 2)])
        self.rate, self.pace, self.moved = rate, Pace(), list[str]()
        self.places = {f"h{number}": 0 for number in range(1, count + 2)}

    def run(self, looks: int) -> list[str]:
        """Return which hosts are moved to the end within so many looks."""
        for look in range(1, looks + 1):
            self.places["h1"] = max(self.places[host] for host in self.places if host != "h1") + 64 * MB
            for link in self.chain.links:
                there = self.places[link.host] + self.rate(link.source, link.host)
                self.places[link.host] = min(self.places[link.source], there)
            slow = self.pace.slow(look * pace.CHECK_INTERVAL, self.chain.links, self.places)
            if slow is not None:
                self.moved.append(slow)
                self.chain.move_last(slow)
        return self.moved


def test_a_host_that_falls_behind_becomes_the_last() -> None:
    line = Line(4, lambda source, host: 10 * MB if host == "h3" else 60 * MB)
    assert "h3" in line.run(60)[:2]
    assert [link.host for link in line.chain.links if link.source == "h3"] == []
    assert line.places["h5"] > 3 * line.places["h3"]


def test_a_host_whose_way_out_is_slow_becomes_the_last() -> None:
    line = Line(5, lambda source, host: 10 * MB if source == "h3" else 60 * MB)
    moved = line.run(30)
    assert "h3" in moved[:3]
    assert [link.host for link in line.chain.links if link.source == "h3"] == []


def test_equal_hosts_are_moved_no_more_than_for_a_trial() -> None:
    assert len(Line(6, lambda source, host: 40 * MB).run(100)) <= pace.TRIALS


def test_a_slow_first_host_is_found_by_a_trial() -> None:
    line = Line(4, lambda source, host: 10 * MB if host == "h2" else 60 * MB)
    assert line.run(30)[:1] == ["h2"]


@pytest.mark.long
def test_other_hosts_do_not_wait_for_a_slow_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(tmp_path, ["h2", "h3", "h4"], 40_000_000)
    played.keep = "image"
    for name, value in {"CHECK_INTERVAL": 0.3, "LAG": 2 * MB, "MIN_BYTES": MB}.items():
        monkeypatch.setattr(pace, name, value)
    quicker = joined(*HAND_ON).replace("FRAME_HEARTBEAT_INTERVAL = 1.0", "FRAME_HEARTBEAT_INTERVAL = 0.2")

    # The slow one makes the last of its way once another one is there, or after a minute: whatever else is slow here.
    slow = f"{str(tmp_path / 'h3')!r} in self.order.get('load', ())"
    behind = f"self.window.end > {30 * MB} and not os.path.exists({str(tmp_path / 'h4 loads')!r})"
    late = 'time.monotonic() < self.__dict__.setdefault("late", time.monotonic() + 60)'
    wait = f"        time.sleep(0.05 if {slow} else 0.005)\n        while {slow} and {behind} and {late}:\n            time.sleep(0.05)\n"
    taking = "    def _put(self, frame: Frame) -> None:\n"
    assert quicker.count(taking) == 1
    monkeypatch.setattr(handing_on, "joined", lambda *names: quicker.replace(taking, taking + wait))
    over = list[str]()

    def tell(name: str, text: str) -> None:
        if " loads " in text:
            over.append(name)
            (tmp_path / f"{name} loads").touch()

    for name, job in played.jobs.items():
        job.tell = functools.partial(tell, name)
    assert HandingOn("app:1", played.source(), played.jobs).run() == {}
    assert played.loaded() == {"h2": True, "h3": True, "h4": True}
    assert "h3" not in over[: over.index("h4")]
