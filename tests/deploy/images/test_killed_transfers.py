"""Random kills in the middle of transfers: of programs, hosts, engines and jobctl itself, on hosts that this machine plays.

After each kill, the next `up` begins: until every host has the image. JOBCTL_TEST_TRANSFERS says how many kills there are,
JOBCTL_TEST_SEED which.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host import handing_on
from jobctl.jobspec.deploy.host.handing_on import HandingOn
from jobctl.jobspec.deploy.host.scripts import HAND_ON, MARK, joined
from jobctl.jobspec.deploy.host.scripts.frames import PIECE
from tests.deploy.images.handing import Played
from tests.deploy.kills import AGAIN, KILLS, SEED, kill_program, lose_unwritten, run, run_and_kill, stays, tell

HOSTS = ("h2", "h3", "h4", "h5")
SIZE = 48_000_000
ROUNDS = 6  # commands until all hosts have it


class Killed:
    """Hosts whose programs write down what they get and who they are, and a jobctl that is a process of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.played = Played(folder, list(HOSTS), SIZE)
        self.played.keep = "image"
        slow = joined(*HAND_ON).replace("FRAME_HEARTBEAT_INTERVAL = 1.0", "FRAME_HEARTBEAT_INTERVAL = 0.2")
        begin = f"\nNOTES = {str(folder)!r}\n"
        note = 'open(NOTES + "/got-" + order["keep"][0].split("/")[-2], "ab").write(b"%d\\n" % len(frame.body))'
        counted = "            self.got += len(frame.body)\n"
        program = slow.replace(counted, f"{counted}            order = self.order\n            {note}\n")
        program = program.replace(counted, f"            time.sleep(0.015)\n{counted}")
        who = '        if "keep" in order:\n            open(NOTES + "/pid-" + order["keep"][0].split("/")[-2], "w").write(str(os.getpid()))\n'
        start = '        self.order, self.key = order, bytes.fromhex(order["key"])\n'
        assert (slow.count(counted), slow.count(start)) == (1, 1)
        text = program.replace(start, start + who).replace("\nSTALL", begin + "\nSTALL", 1)
        monkeypatch.setattr(handing_on, "joined", lambda *names: text)

    def got(self) -> int:
        """Return how many bytes hosts have got over the network, in all transfers."""
        return sum(int(line) for path in self.folder.glob("got-*") for line in path.read_text().split())

    def lacking(self) -> list[str]:
        loaded = self.played.loaded()
        return [host for host in HOSTS if not loaded.get(host)]

    def up(self) -> Callable[[], object]:
        """Return what `up` does for those hosts that lack the image."""
        lacking = self.lacking()
        having = [host for host in HOSTS if host not in lacking]
        source = self.played.source("h1") if self.chance.random() < 0.5 else self.played.here()
        if having:
            source = self.played.source(having[0], ["cat", str(self.folder / having[0])])
        return HandingOn("app:1", source, {host: self.played.jobs[host] for host in lacking}).run

    def kill(self, command: int) -> None:
        """Kill something at random."""
        host, what = self.chance.choice(HOSTS), self.chance.choice(["jobctl", "program", "host", "engine"])
        if what == "jobctl":
            os.kill(command, signal.SIGKILL)
            return
        kill_program(self.folder / f"pid-{host}", itself=what != "engine", below=what != "program")
        if what == "host":
            lose_unwritten(self.folder.glob(f"own/{host}/arriving/*"), self.chance, 2 * PIECE)

    def running(self) -> list[int]:
        pids = [int(path.read_text() or 0) for path in self.folder.glob("pid-*")]
        return [pid for pid in pids if pid and Path(f"/proc/{pid}/cmdline").exists() and _runs(pid)]


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return MARK.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.long
def test_transfers_end_right_whatever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, got, needed = random.Random(SEED), 0, 0
    hits = 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        killed = Killed(folder, monkeypatch, chance)
        size = len(killed.played.image) * len(HOSTS)
        hits += run_and_kill(killed.up(), killed.got, chance.randrange(PIECE, size * 7 // 10), killed.kill)
        for _ in range(ROUNDS):
            if killed.lacking():
                run(killed.up())
        running = stays(killed.running)
        assert (killed.lacking(), killed.played.kept(), running) == ([], {}, []), f"kill {number} of seed {SEED}"
        got, needed = got + killed.got(), needed + size
        for path in folder.glob("h*"):
            path.unlink()
    tell(hits, got / needed - 1, capsys)
    assert got / needed - 1 < AGAIN
