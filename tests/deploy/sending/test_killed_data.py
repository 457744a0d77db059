"""Random kills while data goes from host to host: of programs, of hosts and of jobctl itself, on hosts that this machine plays.

After each kill, the next `up` begins: until every host has the data. JOBCTL_TEST_TRANSFERS says how many kills there are,
JOBCTL_TEST_SEED which.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.deploy.kills import AGAIN, KILLS, SEED, kill_program, lose_unwritten, run, run_and_kill, stays, tell
from tests.deploy.sending.spread_data import HOSTS, Hosts

FILES = {"a": 9_000_000, "b": 24_000_000, **{f"c{number}": 1_500_000 for number in range(10)}}
SIZE = sum(FILES.values())
UPS = 6  # commands until all hosts have it


class Killed:
    """Hosts whose programs write down what they get and who they are, and a jobctl that is a process of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
        folder.mkdir()
        self.folder, self.chance, self.hosts = folder, chance, Hosts(folder, monkeypatch)
        self.hosts.write(**FILES)
        for job in self.hosts.jobs.values():
            job.transport.note = self._note
        got = "            self.got += len(frame.body)\n"
        note = 'open(NOTES + "/got", "ab").write(b"%d\\n" % len(frame.body))'
        start = '        self.order, self.key = order, bytes.fromhex(order["key"])\n'
        who = 'mine = [one[len(NOTES) + 1 :].split("/")[0] for one in order.get("load", ()) if one.startswith(NOTES)]\n'
        who += '        open(NOTES + "/pid-" + (mine or ["source"])[0], "wb").write(b"%d\\n" % os.getpid())'
        program = self.hosts.program.replace(got, f"{got}            {note}\n            time.sleep(0.01)\n")
        program = program.replace(start, f"{start}        {who}\n").replace(
            "MAX_WAITING_BYTES = 16 <<", "MAX_WAITING_BYTES = 2 <<"
        )
        assert (self.hosts.program.count(got), self.hosts.program.count(start)) == (1, 1)
        self.hosts.program = program.replace("\nSTALL", f"\nNOTES = {str(folder)!r}\nSTALL", 1)

    def _note(self, size: int) -> None:
        with (self.folder / "got").open("ab") as file:
            file.write(b"%d\n" % size)

    def got(self) -> int:
        """Return how many bytes hosts have got over the network, in all transfers."""
        path = self.folder / "got"
        return sum(map(int, path.read_text().split())) if path.exists() else 0

    def kill(self, command: int) -> None:
        """Kill something at random."""
        what, host = self.chance.choice(["jobctl", "program", "host", "tar"]), self.chance.choice(HOSTS)
        if what == "jobctl":
            os.kill(command, signal.SIGKILL)
            return
        kill_program(self.folder / f"pid-{host}", itself=what != "tar", below=what != "program")
        if what == "host":
            lose_unwritten((self.folder / host).glob(".data/*/incomplete/b"), self.chance, 2_000_000)


@pytest.mark.long
def test_all_hosts_get_the_data_whatever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, got, hits = random.Random(SEED), 0, 0
    for number in range(KILLS):
        killed = Killed(tmp_path / str(number), monkeypatch, chance)
        hits += run_and_kill(killed.hosts.up, killed.got, chance.randrange(2_000_000, SIZE * 2), killed.kill)
        for _ in range(UPS):
            if killed.hosts.complete() != list(HOSTS):
                run(killed.hosts.up)
        where = f"kill {number} of seed {SEED}"
        left = stays(killed.hosts.left)
        assert (killed.hosts.complete(), left) == (list(HOSTS), []), where
        got += killed.got()
        shutil.rmtree(killed.folder)
    again = got / (SIZE * len(HOSTS) * KILLS) - 1
    tell(hits, again, capsys)
    assert again < AGAIN
