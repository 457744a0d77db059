"""The guard of a rank that waits, and the framework's launcher that waits with the guards of its node.

    I
    └─ T  the framework's launcher, imported, waits for its argv
       └─ S_k  guard of process k, waits for its task
          └─ W_k  the rank's interpreter, in `park`

It is the tree of a running generation (launcher/__init__.py), started early: no process gets another parent, session or way
to end when the generation begins. When T would start the guard of process k by `subprocess`, it finds the one that waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.process_guard import (
    ABANDONED,
    abandon,
    as_user_process,
    process_guard,
)
from jobctl.jobspec.launcher.process_task import ProcessTask
from jobctl.jobspec.launcher.processes import PR_SET_PDEATHSIG, SIGNALS, adopt_orphans, prctl
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.rehearsal import rehearse
from jobctl.jobspec.launcher.standby_messages import (
    FrameworkStart,
    GuardPreparation,
    GuardStart,
    NodePreparation,
    RankPreparation,
    RankStart,
    StandbyNews,
)
from jobctl.jobspec.launcher.standby_rank import (
    HOOK,
    MODULE,
    PROBE,
    REACHED,
    group_nice,
    hear,
    hear_news,
    take_cores,
    tell,
    yield_cores,
)

if TYPE_CHECKING:
    from typing import Any, ClassVar, Dict, List, NoReturn, Optional, Tuple
PROBED = 60.0  # seconds that an interpreter may take to begin
PATIENT = 30.0  # seconds in which an import gets what cores others leave
ANSWERED = 5.0  # seconds in which a rank that waits has to answer
# Variables that differ from one generation to the next, or that a spare does not know before it is a node. No framework's C++ reads them while it is imported; whether Python
# code does is seen (Preloaded.stale).
CHANGING = frozenset(
    (
        *("JOBCTL_CHECKPOINT_DIR", "JOBCTL_GENERATION", "JOBCTL_NODES", "JOBCTL_PROCESS", "JOBCTL_PROGRESS_FILE"),
        *("JOBCTL_NODE", "NO_PROXY", "no_proxy"),
        *(
            "JOBCTL_ROLE_RANK",
            "JOBCTL_RUN_ID",
            "JOBCTL_SERVERS",
            "JOBCTL_TRAINERS",
            "MASTER_ADDR",
            "MASTER_PORT",
            "RANK",
            "WORLD_SIZE",
        ),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE"),
        *("TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"),
        *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
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
    os.symlink(source, program)  # under a name that it can be imported by, which compiles it once


def differing(before: Dict[str, str], now: Dict[str, str]) -> Optional[str]:
    """Return a variable because of which what was imported with `before` is not good for `now`, None if there is none."""
    names = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)} - CHANGING
    return min(names, default=None)


class ParkedRank:
    """A rank's interpreter that has imported everything and waits. Raises CannotWait."""

    def __init__(self, task: GuardPreparation, environ: Dict[str, str]) -> None:
        argv = task.command
        self.argv, self.environ, self.group = argv, environ, group_nice()
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

    def warm(self) -> None:
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
        name = differing(self.environ, environ)
        return "the variable %s has changed" % name if name else None

    def hand_over(self, environ: Dict[str, str], cold: str) -> Optional[str]:
        """Tell it what to run with; say why it does not."""
        self.channel.settimeout(ANSWERED)
        try:
            self.channel.sendall(json.dumps(RankStart(environ, cold).to_json()).encode() + b"\n")
            ready, _, _ = select.select([self.channel], [], [], ANSWERED)
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
    adopt_orphans()
    signal.signal(ABANDONED, lambda number, frame: abandon())
    prctl(PR_SET_PDEATHSIG, ABANDONED)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    environ.pop("JOBCTL_PROCESS", None)
    try:
        rank = ParkedRank(task, environ)
        rank.warm()
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
    return process_guard(ProcessTask.from_json(json.loads(environ.pop("JOBCTL_PROCESS"))), environ, rank)


def append_to(log: str) -> None:
    """Have the standard streams of this process end up in a log."""
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


class ParkedGuard:
    """The guard of a rank that waits, as its parent has it."""

    def __init__(self, node: NodePreparation, environ: Dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self.channel, self.environ = ours, environ
        task = GuardPreparation(node.hook, node.imports, node.command, theirs.fileno())
        self.process = subprocess.Popen(
            node.guard,
            env={**self.environ, "JOBCTL_STANDBY": json.dumps(task.to_json())},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=node.apart,
        )
        theirs.close()

    def hand_over(self, environ: Dict[str, str], log: str) -> None:
        """Tell it its task. Raises OSError."""
        self.channel.sendall(json.dumps(GuardStart(environ, log).to_json()).encode() + b"\n")
        self.channel.close()
        self.process.returncode = 0  # from now on another object waits for it: this one must not


class Adopting(subprocess.Popen):  # type: ignore[type-arg]
    """Starts a process; where that is a guard that waits already, it is that one."""

    guards: ClassVar[Dict[str, ParkedGuard]] = {}  # by local rank, once they may be used
    argv: ClassVar[List[str]] = []  # what starts a guard
    apart = False
    log = ""

    def __init__(self, args: Any, *rest: Any, **how: Any) -> None:
        self.waiting = self.find(args, rest, how)
        self.wanted: Dict[str, str] = dict(how.get("env") or {})
        super().__init__(args, *rest, **how)

    @classmethod
    def find(cls, args: Any, rest: Any, how: Dict[str, Any]) -> Optional[ParkedGuard]:
        """Return the guard that waits for this start, None where it is for something else, or has to be another way."""
        if isinstance(args, (str, bytes)) or [*args] != cls.argv:
            return None
        guard = cls.guards.pop((how.get("env") or {}).get("LOCAL_RANK", ""), None)
        further = {name for name, value in how.items() if value} - {"env", "start_new_session", "close_fds"}
        if guard is not None and (rest or further or bool(how.get("start_new_session")) != cls.apart):
            guard.channel.close()  # it ends
            return None
        return guard

    def _execute_child(self, *args: Any) -> None:
        if self.waiting is not None:
            try:
                self.waiting.hand_over(self.wanted, self.log)
            except OSError:
                self.waiting.process.kill()  # and what is below it with it
                self.waiting.process.wait()
            else:
                self.pid: int = self.waiting.process.pid
                self._child_created = True
                return
        super()._execute_child(*args)  # type: ignore[misc]


def import_late(name: str) -> Any:
    """Import the framework's launcher, behind all that runs. What is started from here must not inherit that."""
    import importlib

    sys.path[0] = os.getcwd()
    cores = yield_cores(idle=False)
    module = importlib.import_module(name)
    take_cores(*cores)
    return module


def give_up(channel: int, why: str) -> NoReturn:
    """Say why there is no standby, and end."""
    tell(channel, StandbyNews(off=why))
    os._exit(0)


def parked_launcher(channel: int) -> NoReturn:
    """Be the framework's launcher: start the guards of all ranks, import, and wait for what to run."""
    os.set_inheritable(channel, False)
    told = hear(channel)
    if told is None:
        os._exit(0)
    node = NodePreparation.from_json(told)
    subprocess.Popen = Adopting  # type: ignore[misc]
    module: Any = None
    if node.trial is not None:  # nobody knows yet what the guards begin with
        module = import_late(node.module)
        found = rehearse(module, node.trial)
        if found.off is not None:
            give_up(channel, found.off)
        node = changed(node, environs=found.environs, apart=found.apart)
    guards = {}
    for environ in node.environs:
        one = guards[environ["LOCAL_RANK"]] = ParkedGuard(node, environ)
        said = hear_news(one.channel.fileno()) or StandbyNews(off="the guard of a rank that waits has ended")
        if said.off is not None:
            give_up(channel, said.off)
    module = module or import_late(node.module)
    tell(channel, StandbyNews(ready=True))
    start = wait_for_start(channel, guards)
    os.close(channel)
    append_to(start.log)
    os.environ.clear()
    os.environ.update(start.environ)
    Adopting.guards, Adopting.argv, Adopting.log = guards, start.guard, start.log
    Adopting.apart = node.apart
    sys.argv = [module.__file__, *start.argv]
    sys.exit(module.main(start.argv))


def wait_for_start(channel: int, guards: Dict[str, ParkedGuard]) -> FrameworkStart:
    """Return what to run; end where there will be nothing, or where a rank that waits has ended."""
    ready, _, _ = select.select([channel, *(guard.channel.fileno() for guard in guards.values())], [], [])
    said = hear(channel) if channel in ready else None
    if said is None:
        os._exit(0)
    return FrameworkStart.from_json(said)
