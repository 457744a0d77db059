"""Where processes that hang stand."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.control import log_of
from jobctl.jobspec.launcher.system.files import TAIL_CHARACTERS, note, read_from, size_of
from jobctl.jobspec.launcher.system.processes import TGKILL, caught_signals

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from jobctl.jobspec.launcher.run.run import Run
STACKS = 5.0  # seconds in which hung processes are asked where they stand
STACK_LINES = 30  # of a stack, in the report
# py-spy's dump, then faulthandler's: the innermost function of the main thread, which the latter names last.
PLACES = (
    (
        r'Process (?P<pid>\d+):[\s\S]*?\nThread (?:(?P=pid) \(|[^\n]*"MainThread")[^\n]*\n'
        r"\s+(?P<function>\S+) \((?P<file>.+):(?P<line>\d+)\)"
    ),
    (
        r"(?:Current t|T)hread [^\n]*\(most recent call first\):\n"
        r'\s+File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>\S+)'
        r"(?![\s\S]*\(most recent call first\):\n\s+File)"
    ),
)


class Stacks:
    """Asks the processes of a run where they stand.

    First those that go on afterwards: py-spy asks, or the script prints its stack at SIGUSR1. One that prints it at
    SIGABRT alone (`faulthandler.enable()`) dies of that, and its peers then fail in what they waited for. So those are
    held still first, on every node, and asked when all are: what has got SIGABRT prints before it does anything else.
    """

    def __init__(self, run: Run, pause: Callable[[float], bool]) -> None:
        self.run, self.pause = run, pause
        run.look()
        run.stacks.clear()
        self.running = {p.local_rank: p.pid for p in run.processes if p.state == "running" and p.pid}
        self.logs = {
            local: os.path.join(run.folders.logs, log_of(run.launch.log_name, local)) for local in self.running
        }
        self.frozen: Dict[int, int] = {}

    def look(self) -> None:
        """Ask those that go on afterwards."""
        for local, text in spied(self.running, self.pause).items():
            self.run.keep_stack(local, text)
        before = {local: size_of(path) for local, path in self.logs.items()}
        self.wait({local: before[local] for local in self.rest(signal.SIGUSR1) if self.ask(local, signal.SIGUSR1)})
        self.run.keep_recorder()

    def freeze(self) -> None:
        """Hold those still that die of being asked."""
        self.frozen = {local: self.running[local] for local in self.rest(signal.SIGABRT)}
        for local in list(self.frozen):
            self.ask(local, signal.SIGSTOP)

    def abort(self) -> None:
        """Ask them."""
        before = {local: size_of(self.logs[local]) for local in self.frozen}
        for local in self.frozen:
            self.ask(local, signal.SIGABRT)
        for local in self.frozen:
            self.ask(local, signal.SIGCONT)
        self.wait(before)

    def rest(self, number: int) -> List[int]:
        """Return the processes that have not said where they stand, and have a handler for a signal."""
        left = {local: pid for local, pid in self.running.items() if local not in self.run.stacks}
        return [local for local, pid in left.items() if caught_signals(pid) >> (number - 1) & 1]

    def ask(self, local: int, number: int) -> bool:
        """Send a process a signal; say whether it is there."""
        with contextlib.suppress(OSError):
            # Another of its threads would leave the first one the time to go on.
            if number == signal.SIGABRT and TGKILL is not None:
                return TGKILL(self.running[local], self.running[local], number) == 0
            os.kill(self.running[local], number)
            return True
        return False

    def ended(self) -> List[int]:
        """Return the processes whose output is complete: their guards have written down the end, or are gone too."""
        self.run.look()
        over = [p for p in self.run.processes if p.state != "running" or not (p.is_alive() or p.has_guard())]
        return [process.local_rank for process in over]

    def wait(self, before: Dict[int, int]) -> None:
        """Keep what processes print into their logs behind what was there `before`.

        One that has ended prints no more: what handles SIGABRT may be Paddle, which tells of its C++ code alone.
        """
        deadline = time.monotonic() + STACKS
        texts: Dict[int, str] = {}
        while time.monotonic() < deadline:
            ended = self.ended()
            texts = {local: read_from(self.logs[local], start) for local, start in before.items()}
            if all(local in ended or innermost(text) is not None for local, text in texts.items()):
                break
            if not self.pause(0.02):
                break
        for local, text in texts.items():
            if text.strip():
                self.run.keep_stack(local, text)


def spied(running: Dict[int, int], pause: Callable[[float], bool]) -> Dict[int, str]:
    """Return what py-spy says of processes, where there is one that may look into them."""
    import shutil
    import tempfile

    tool = shutil.which("py-spy")
    if tool is None:
        return {}
    outputs: Dict[int, Any] = {}
    spies: Dict[int, subprocess.Popen[bytes]] = {}
    try:
        for local, pid in running.items():
            outputs[local] = tempfile.TemporaryFile()  # noqa: SIM115
            spies[local] = subprocess.Popen(
                [tool, "dump", "--full-filenames", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=outputs[local],
                stderr=subprocess.DEVNULL,
            )
    except OSError as error:  # a full disk, too many processes: what hangs must end all the same
        note("cannot run %s: %s" % (tool, error))
    deadline = time.monotonic() + STACKS
    while any(spy.poll() is None for spy in spies.values()) and time.monotonic() < deadline:
        if not pause(0.05):
            break
    found = {}
    for local, spy in spies.items():
        spy.kill()
        if spy.wait() == 0:
            outputs[local].seek(0)
            found[local] = outputs[local].read().decode("utf-8", "replace")
        outputs[local].close()
    return found


def innermost(text: str) -> Optional[str]:
    """Return the function that the main thread of a dumped process is in, None if it does not say."""
    for pattern in PLACES:
        match = re.search(pattern, text)
        if match:
            return "%s (%s:%s)" % (match.group("function"), match.group("file"), match.group("line"))
    return None


def frames(text: str) -> List[str]:
    """Return the frames of the main thread of a dumped process, the innermost first."""
    for pattern in PLACES:
        match = re.search(pattern, text)
        if match:
            first = text.rindex("\n", 0, match.start("file")) + 1
            lines = itertools.takewhile(lambda line: line[:1].isspace() and line.strip(), text[first:].splitlines())
            return [line.strip()[:TAIL_CHARACTERS] for line in itertools.islice(lines, STACK_LINES)]
    return []
