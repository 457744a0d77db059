"""What runs on each machine of an allocation: it starts the launcher of the node that the coordinator gives it."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.container import ContainerHold
from jobctl.jobspec.allocation.launching import Launching
from jobctl.jobspec.allocation.messages import ANSWER_KEYS, RUNNER_SILENCE_TIMEOUT, TICK, TOKEN, Datagrams, say
from jobctl.jobspec.allocation.succession import Succession
from jobctl.jobspec.launcher.system.files import read_json, write_json
from jobctl.jobspec.launcher.system.processes import (
    EXIT_MOVES,
    EXIT_TAKEN,
    SIGNALS,
    adopt_orphans,
    boot_time,
    die_with_parent,
    kill_descendants,
    reap,
)

if TYPE_CHECKING:
    import argparse
    from typing import Any, Optional, Tuple

    from jobctl.jobspec.launcher.system.files import Json
POLL = 0.1  # seconds between two looks at the launcher
FIRST_TICKS = 0.1  # seconds between two ticks of a runner that has no node yet: an answer to one tells it
EARLY = 5.0  # seconds for which it ticks that often; a spare goes on for days
MOST_TICKS = 500  # ticks a second that the coordinator may get of all runners
PAUSE = 0.5  # seconds before a launcher that was killed is started again
# How a launcher ends that was killed or told to end, or that finds another one still ending.
KILLED_BY_OTHERS = (EXIT_TAKEN, 137, 143)
EXCLUDED = "a rule of `recovery.rules`, or one of jobctl's own, has the node leave this machine"


class NodeRunner:
    """Runs one node's launcher, as long as the coordinator answers.

    An answer renews the lease from when its tick was sent. Without one for `host_timeout` the launcher is killed: its node
    may be started on a spare.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.work = options.work
        self.settings = read_json(os.path.join(self.work, "slurm.json")) or {}
        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.slot = int(os.environ.get("SLURM_LOCALID") or 0)  # which of the runners on this machine it is
        self.own = os.path.join(self.work, "hosts", self.host, str(self.slot))
        self.container = ContainerHold(self.work, self.own) if self.settings["container"] != "none" else None
        self.succession = Succession(self.work, self.settings, dict(os.environ))
        self.coordinator = (options.address, options.port)
        self.datagrams = Datagrams(os.environ.pop(TOKEN, ""), ANSWER_KEYS)
        self.who = os.urandom(8).hex()
        self.timeout = float(self.settings["host_timeout"])
        self.sent = 0  # ticks
        self.pending: dict[int, float] = {}  # when those were sent that nobody has answered
        self.renewed: Optional[float] = None  # when the newest answered tick was sent
        self.order: Json = {"turn": 0, "node": None}
        self.names = 0  # the version of the addresses that it has
        self.launcher: Optional[subprocess.Popen[bytes]] = None
        self.launching: Optional[Launching] = None  # its last start
        self.begun = False  # whether a launcher has begun in this turn
        self.refused: Optional[str] = None  # why none could be started
        self.excluded = False  # or whether one has ended so that its node moves
        self.runs: Tuple[Optional[int], int] = (None, 0)  # node and turn that the launcher runs
        self.ended: Optional[int] = None  # how it ended, if it does not run any more
        self.killed = 0.0  # when it was killed by somebody else
        self.again = 0  # how often it was started again
        self.deadline: Optional[float] = None  # when what was told to end is killed
        self.signal: Optional[int] = None
        self.left: Optional[float] = None  # since when it has nothing to do any more, as it was told to end
        self.next = 0.0
        self.started = boot_time()

    def run(self) -> int:
        """Serve until the coordinator says that the job has ended."""
        adopt_orphans()
        die_with_parent()
        for number in SIGNALS:
            signal.signal(number, self.on_signal)
        self.finish()  # what a node runner has left that was killed
        while True:
            now = boot_time()
            for message, _ in self.datagrams.receive():
                self.hear(message)
            if self.launching is not None:
                self.launching.pass_on()
            self.look(now)
            if self.order.get("leave") or self.has_said_so(now):
                self.kill()
                return 0
            self.act(now)
            if now >= self.next:
                self.tell(now)
            select.select([self.datagrams.socket], [], [], POLL)

    def on_signal(self, number: int, frame: Any) -> None:
        """Slurm ends the job, at its time limit for example: the launcher gets its time to end."""
        self.signal = number

    def has_said_so(self, now: float) -> bool:
        """Say whether somebody has told this runner to end, and the coordinator had the time to hear that it does."""
        if self.signal is not None and self.launcher is None and self.ended is not None:
            self.left = self.left or now
        return self.left is not None and now - self.left > RUNNER_SILENCE_TIMEOUT

    # The coordinator.

    def tell(self, now: float) -> None:
        """Send a tick, with how things are here."""
        self.sent += 1
        self.pending[self.sent] = now
        self.pending = {tick: at for tick, at in self.pending.items() if now - at < self.timeout}
        self.next = now + pause_after(self.order["node"], now - self.started, int(os.environ.get("SLURM_NNODES") or 1))
        node, turn = self.runs
        message = {
            "tick": self.sent,
            "who": self.who,
            "host": self.host,
            "slot": self.slot,
            "node": node,
            "turn": turn,
            "ended": self.ended,
            "begun": self.begun,
            "refused": self.refused,
            "excluded": self.excluded,
            "alive": self.launcher is not None,
            "again": self.again,
            "names": self.names,
            "leaving": self.signal is not None,
        }
        self.datagrams.send(message, self.coordinator)

    def hear(self, message: Json) -> None:
        """Take note of an answer to a tick of this runner's own.

        A second answer to a tick brings news, and renews no lease.
        """
        if message.get("who") != self.who or message["tick"] > self.sent:
            return
        at = self.pending.pop(message["tick"], None)
        if at is not None:
            self.renewed = max(at, self.renewed or at)
        if message["leave"] or message["seq"] >= self.order.get("seq", 0):
            self.order = message
            # A runner that has to leave may be told nothing else.
            self.succession.home = message.get("home", self.succession.home)
        news = "names" in message and message["version"] > self.names
        if news and write_json(os.path.join(self.own, "names.json"), message["names"]):
            self.names = message["version"]

    def has_lease(self, now: float) -> bool:
        """Say whether the launcher may run."""
        return self.renewed is not None and now - self.renewed < self.timeout

    # The launcher.

    def look(self, now: float) -> None:
        """Take note of a launcher that has ended."""
        codes = reap()
        if self.launcher is None or self.launching is None:
            return
        self.begun = self.begun or self.launching.has_begun()
        if self.launcher.pid not in codes:
            return
        code, self.launcher = codes[self.launcher.pid], None
        self.launching.close()
        has_begun, words, self.launching = self.launching.has_begun(), self.launching.words(code), None
        self.finish()
        told = self.signal is not None or self.deadline is not None
        if code in KILLED_BY_OTHERS and not told:
            say("the launcher of node %d was killed (exit code %d)" % (self.runs[0] or 0, code))
            self.killed = now
            self.again += 1
        else:
            self.ended = code
            self.excluded = code == EXIT_MOVES and not told
            self.refused = EXCLUDED if self.excluded else words if code and not has_begun and not told else None
            self.begun = self.begun and self.refused is None
        self.deadline = None
        self.next = 0.0

    def act(self, now: float) -> None:
        """Do what the coordinator wants, as far as there is a lease for it."""
        if not self.has_lease(now):
            if self.launcher is not None:
                say("the coordinator has not answered for %g s: ends node %d" % (self.timeout, self.runs[0] or 0))
                self.kill()
            if self.renewed is not None:
                self.succession.consider(now - self.renewed, now)
            return
        if self.launcher is not None and self.deadline is not None and now > self.deadline:
            self.kill()
            self.ended = 137
        wanted = (self.order["node"], self.order["turn"])
        if self.order.get("stop") or self.signal is not None:
            self.end(now)
        elif wanted != self.runs:
            self.change(wanted, now)
        elif self.launcher is None and self.ended is None and wanted[0] is not None and now > self.killed + PAUSE:
            self.start(wanted)

    def end(self, now: float) -> None:
        """Tell the launcher to end, once; a node without one has ended."""
        if self.launcher is None:
            self.ended = 143 if self.ended is None else self.ended
        elif self.deadline is None:
            grace = self.grace()
            self.launcher.send_signal(signal.SIGTERM)
            self.deadline = now + grace + 5.0

    def grace(self) -> float:
        """Return how long processes get to end; if the user has asked for another time, the launcher can read it, too."""
        usual = float(self.settings["stop_grace"])
        asked = float(self.order.get("grace", usual))
        if asked == usual:
            return usual
        path = os.path.join(self.own, "launch.json")
        launch = read_json(path)
        if launch is not None:
            write_json(path, {**launch, "stop_grace": asked})
        return asked

    def change(self, wanted: Tuple[Optional[int], int], now: float) -> None:
        """Go over to another node, or to another turn of the same, whose processes get their time to end."""
        if self.launcher is not None and wanted[0] == self.runs[0]:
            self.end(now)
            return
        self.kill()
        self.ended, self.deadline = None, None
        self.begun, self.refused, self.excluded = False, None, False
        self.runs = wanted
        self.next = 0.0
        if wanted[0] is not None:
            self.start(wanted)

    def start(self, wanted: Tuple[Optional[int], int]) -> None:
        """Start the launcher of a node, or take note of why this machine cannot."""
        node = int(wanted[0] or 0)
        try:
            self.prepare(node)
            self.launch(node)
        except OSError as error:
            if self.launching is not None:
                self.launching.close()
                self.launching = None
            self.ended, self.refused = 1, "%s: %s" % (error.filename or "sh", error.strerror)
            say("cannot start node %d: %s" % (node, self.refused))
            self.next = 0.0

    def prepare(self, node: int) -> None:
        """Write what the launcher of a node reads."""
        with open(os.path.join(self.work, "launch.json"), encoding="utf-8") as file:
            launch = next(one for one in map(_parsed, file) if one.get("node") == node)
        launch["peer_port"] = self.order["peer_port"] + self.slot
        os.makedirs(self.own, exist_ok=True)
        path = os.path.join(self.own, "launch.json")
        if not write_json(path, launch):  # it may have that of another node, which is there already
            raise OSError(errno.EIO, "cannot be written; slurm.out says why", path)
        os.makedirs(os.path.join(self.work, "node-%d" % node), exist_ok=True)

    def launch(self, node: int) -> None:
        """Start the program that becomes the launcher, or its container."""
        environ = {name: value for name, value in os.environ.items() if name != TOKEN}
        argv = ["sh", os.path.join(self.work, "start.sh"), "start", str(node), self.order["address"], self.own]
        if self.container is not None:
            self.container.take(environ)
            argv.append(self.order.get("image") or "")
        self.launching = Launching(os.path.join(self.work, "node-%d" % node, "report.json"))
        try:
            self.launcher = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stderr=self.launching.writing,
                env=environ,
                preexec_fn=die_with_parent,
            )
        finally:
            self.launching.started()

    def kill(self) -> None:
        """End the launcher, with all that it has started, at once."""
        if self.launcher is None:
            return
        if self.container is not None:
            self.container.let_go()
        kill_descendants()
        self.launcher = None
        if self.launching is not None:
            self.launching.close()
            self.launching = None
        self.finish()

    def finish(self) -> None:
        """Remove what a launcher has left: a container has its own parent."""
        if self.container is not None:
            self.container.remove()


def pause_after(node: Optional[int], age: float, machines: int) -> float:
    """Return in how many seconds a runner of such an age ticks again; on many machines they are not quicker at first."""
    early = node is None and age < EARLY
    return min(TICK, max(FIRST_TICKS, machines / MOST_TICKS)) if early else TICK


def _parsed(line: str) -> Json:
    """Return what a line of the file with all launches holds, nothing for its brackets."""
    found = json.loads(line.strip().rstrip(",") or "{}") if line.startswith("{") else {}
    return found if isinstance(found, dict) else {}
