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
from jobctl.jobspec.deploy.host.scripts import joined
from jobctl.jobspec.deploy.host.scripts.frames import PIECE

from .handing import Played

KILLS = int(os.environ.get("JOBCTL_TEST_TRANSFERS", "3"))
SEED = int(os.environ.get("JOBCTL_TEST_SEED", "1"))
HOSTS = ("h2", "h3", "h4", "h5")
SIZE = 48_000_000
ROUNDS = 6  # commands until all hosts have it
AGAIN = 0.1  # of the bytes may travel twice


class Killed:
    """Hosts whose programs write down what they get and who they are, and a jobctl that is a process of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.played = Played(folder, list(HOSTS), SIZE)
        self.played.keep = "image"
        slow = joined("kept", "frames", "hand_on").replace("BEAT = 1.0", "BEAT = 0.2")
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

    def command(self) -> int:
        """Start what `up` does for those hosts that lack the image; return the id of its process."""
        lacking = self.lacking()
        having = [host for host in HOSTS if host not in lacking]
        source = self.played.source("h1") if self.chance.random() < 0.5 else self.played.here()
        if having:
            source = self.played.source(having[0], ["cat", str(self.folder / having[0])])
        jobs = {host: self.played.jobs[host] for host in lacking}
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                HandingOn("app:1", source, jobs).run()
            os._exit(0)
        return child

    def run(self, then: Callable[[int], None], at: int) -> bool:
        """Run a command to its end, and do something once so many bytes have come; say whether that was done."""
        child, done = self.command(), False
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if not done and self.got() >= at:
                done = True
                then(child)
            with contextlib.suppress(OSError):
                signal.sigtimedwait([], 0.005)
        return done

    def kill(self, command: int) -> None:
        """Kill something at random."""
        host, what = self.chance.choice(HOSTS), self.chance.choice(["jobctl", "program", "host", "engine"])
        if what == "jobctl":
            os.kill(command, signal.SIGKILL)
            return
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / f"pid-{host}").read_text())
            children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            for one in (*(children if what != "program" else ()), *([pid] if what != "engine" else ())):
                os.kill(one, signal.SIGKILL)
        if what == "host":  # what it had not written to its disk yet is lost
            for path in self.folder.glob(f"own/{host}/arriving/*"):
                os.truncate(path, max(0, path.stat().st_size - self.chance.randrange(2 * PIECE)))

    def running(self) -> list[int]:
        pids = [int(path.read_text() or 0) for path in self.folder.glob("pid-*")]
        return [pid for pid in pids if pid and Path(f"/proc/{pid}/cmdline").exists() and _runs(pid)]


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"class Relay" in Path(f"/proc/{pid}/cmdline").read_bytes()
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
        hits += killed.run(killed.kill, chance.randrange(PIECE, size * 7 // 10))
        for _ in range(ROUNDS):
            if killed.lacking():
                killed.run(lambda command: None, 1 << 60)
        assert (killed.lacking(), killed.played.kept(), killed.running()) == ([], {}, []), (
            f"kill {number} of seed {SEED}"
        )
        got, needed = got + killed.got(), needed + size
        for path in folder.glob("h*"):
            path.unlink()
    with capsys.disabled():
        print(
            f"\n{hits} kills in the middle of {KILLS} transfers: {100 * (got / needed - 1):.1f} % of the bytes travelled again"
        )
    assert got / needed - 1 < AGAIN
