"""The guard of a rank that waits.

    S_k  guard of process k, waits for its task
    └─ W_k  the rank's interpreter, in `park`

They are part of the tree of a running generation (launcher/__init__.py), started early: no process gets another parent,
session or way to end when the generation begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import subprocess
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.process.guard import (
    abandon,
    as_user_process,
    leave_nothing_behind,
    process_guard,
)
from jobctl.jobspec.launcher.process.task import ProcessTask
from jobctl.jobspec.launcher.standby.messages import (
    GuardPreparation,
    GuardStart,
    RankPreparation,
    RankStart,
    StandbyNews,
)
from jobctl.jobspec.launcher.standby.rank import (
    HOOK,
    MODULE,
    PROBE,
    REACHED,
    group_nice,
    hear,
    hear_news,
    take_cores,
    tell,
)
from jobctl.jobspec.launcher.system.bytecode import keep_compiled_module
from jobctl.jobspec.launcher.system.network import meet

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple
PROBED = 60.0  # seconds that an interpreter may take to begin
PATIENT = 30.0  # seconds in which an import gets what cores others leave
RANK_ANSWER_TIMEOUT = 5.0  # seconds in which a rank that waits has to answer
# Variables that differ from one generation to the next, or that a spare does not know before it is a node, whatever the
# framework: it names its own (`changing`). No framework's C++ reads them while it is imported; whether Python code does is
# seen (Preloaded.stale).
CHANGING = frozenset(
    (
        *("JOBCTL_CHECKPOINT_DIR", "JOBCTL_GENERATION", "JOBCTL_NODE", "JOBCTL_NODES", "JOBCTL_PROCESS"),
        *("JOBCTL_PROGRESS_FILE", "JOBCTL_ROLE_RANK", "JOBCTL_RUN_ID", "JOBCTL_SERVERS", "JOBCTL_TRAINERS"),
        *("MASTER_ADDR", "MASTER_PORT", "NO_PROXY", "RANK", "WORLD_SIZE", "no_proxy"),
    )
)


class CannotWait(Exception):
    """Why a rank cannot wait."""


def write_hook(folder: str, source: str) -> None:
    """Write the sitecustomize that parks an interpreter."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
        file.write(HOOK)
    program = os.path.join(folder, MODULE + ".py")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(program)
    os.symlink(source, program)  # under a name that it can be imported by
    keep_compiled_module(program)


def differing(before: Dict[str, str], now: Dict[str, str], changing: Sequence[str]) -> Optional[str]:
    """Return a variable because of which what was imported with `before` is not good for `now`, None if there is none."""
    names = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return min(names.difference(CHANGING, changing), default=None)


class ParkedRank:
    """A rank's interpreter that has imported everything and waits. Raises CannotWait."""

    def __init__(self, task: GuardPreparation, environ: Dict[str, str]) -> None:
        argv = task.command
        self.argv, self.environ, self.changing, self.group = argv, environ, task.changing, group_nice()
        self.reading, writing = os.pipe()
        ours, theirs = socket.socketpair()
        self.channel = ours
        path = environ.get("PYTHONPATH")
        hooked = {**environ, "PYTHONPATH": os.pathsep.join([task.hook, *([path] if path else [])])}
        size, self.most = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.probe({**hooked, "JOBCTL_STANDBY": PROBE})
        first, name = first_of_path(argv)
        told = RankPreparation(size, task.hook, path, theirs.fileno(), argv, task.imports, first, name)
        self.child = subprocess.Popen(
            argv,
            env={**hooked, "JOBCTL_STANDBY": json.dumps(told.to_json())},
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            pass_fds=[theirs.fileno()],
            preexec_fn=self.as_parked,
        )
        theirs.close()
        os.close(writing)

    def as_parked(self) -> None:
        """Be a user's process that can write into no file: `park` undoes that (runs between fork and exec)."""
        as_user_process()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self.most))

    def probe(self, environ: Dict[str, str]) -> None:
        """Make sure that this interpreter runs the hook first. Otherwise it would run the script."""
        argv = [*self.argv[:2], os.devnull]
        try:
            probe = subprocess.run(
                argv, env=environ, stdin=subprocess.DEVNULL, timeout=PROBED, preexec_fn=self.as_parked
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotWait("cannot start %s: %s" % (self.argv[0], error)) from error
        if probe.returncode != REACHED:
            raise CannotWait("%s does not run sitecustomize first" % self.argv[0])

    def await_imports(self) -> None:
        """Return when it has imported everything. Raises CannotWait."""
        if not select.select([self.channel], [], [], PATIENT)[0]:
            with contextlib.suppress(OSError):  # cores that are never idle would have it import for ever
                take_cores(os.SCHED_BATCH, self.group, str(self.child.pid))
        said = hear_news(self.channel.fileno())
        if said is None:
            os.set_blocking(self.reading, False)
            lines = os.read(self.reading, 65536).decode("utf-8", "replace").splitlines() if self.has_said() else []
            raise CannotWait("a rank that imports has ended%s" % (": " + lines[-1] if lines else ""))
        if said.off is not None:
            raise CannotWait(said.off)

    def has_said(self) -> bool:
        """Say whether it has printed anything."""
        return bool(select.select([self.reading], [], [], 0)[0])

    def take(self, argv: List[str], environ: Dict[str, str], cold: str) -> Optional[str]:
        """Have it run its script with `environ`; return why it does not, after which it is gone, None if it does.

        `cold` is the file into which it writes why it has gone on cold.
        """
        why = self.unfit(argv, environ) or self.hand_over(environ, cold)
        if why:
            self.end()
        self.channel.close()
        return why

    def unfit(self, argv: List[str], environ: Dict[str, str]) -> Optional[str]:
        """Say what it was started with that is not what is wanted."""
        if argv != self.argv:
            return "the command has changed"
        name = differing(self.environ, environ, self.changing)
        return "the variable %s has changed" % name if name else None

    def hand_over(self, environ: Dict[str, str], cold: str) -> Optional[str]:
        """Tell it what to run with; say why it does not."""
        self.channel.settimeout(RANK_ANSWER_TIMEOUT)
        try:
            self.channel.sendall(json.dumps(RankStart(environ, cold).to_json()).encode() + b"\n")
            ready, _, _ = select.select([self.channel], [], [], RANK_ANSWER_TIMEOUT)
            lost = StandbyNews(cold="a rank that waits does not answer")
            said = hear_news(self.channel.fileno()) if ready else lost
        except OSError as error:
            return "a rank that waits has ended (%s)" % error
        return "a rank that waits has ended" if said is None else said.cold

    def end(self) -> None:
        """Kill it."""
        self.child.kill()
        self.child.wait()
        os.close(self.reading)


def resident(pid: int) -> int:
    """Return how much memory a process takes, in bytes. Raises OSError."""
    with open("/proc/%d/statm" % pid) as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def first_of_path(argv: List[str]) -> Tuple[str, str]:
    """Return what Python puts first into sys.path for a command of `python -u`, and the name of the script."""
    if argv[2] == "-m":
        return os.getcwd(), "__main__.py"
    path = os.path.realpath(argv[2])
    return os.path.dirname(path), os.path.basename(argv[2])


def parked_guard(task: GuardPreparation, environ: Dict[str, str]) -> int:
    """Be the guard of a rank that waits, until it is told its task; then be the guard of that."""
    channel = socket.socket(fileno=task.fd)
    channel.set_inheritable(False)
    leave_nothing_behind()
    environ.pop("JOBCTL_PROCESS", None)
    try:
        rank = ParkedRank(task, environ)
        rank.await_imports()
    except CannotWait as problem:
        tell(channel.fileno(), StandbyNews(off=str(problem)))
        abandon()
    tell(channel.fileno(), StandbyNews(ready=True, memory=resident(rank.child.pid)))
    ready, _, _ = select.select([channel, rank.channel], [], [])
    said = hear(channel.fileno()) if channel in ready else None  # else the rank has ended
    if said is None:
        abandon()
    channel.close()
    start = GuardStart.from_json(said)
    append_to(start.log)
    environ = start.environ
    meet(start.meets, start.head_start)
    return process_guard(ProcessTask.from_json(json.loads(environ.pop("JOBCTL_PROCESS"))), environ, rank)


def append_to(log: str) -> None:
    """Have the standard streams of this process end up in a log."""
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
