"""The framework's launcher that waits with the guards of its node.

    I
    └─ T  the framework's launcher, imported, waits for its argv
       └─ S_k  guard of process k (guard.py)
          └─ W_k  the rank's interpreter

When T would start the guard of process k by `subprocess`, it finds the one that waits.
"""

from __future__ import annotations

import json
import os
import select
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.standby.guard import append_to
from jobctl.jobspec.launcher.standby.messages import (
    FrameworkStart,
    GuardPreparation,
    GuardStart,
    NodePreparation,
    StandbyNews,
)
from jobctl.jobspec.launcher.standby.pauses import LauncherPauses
from jobctl.jobspec.launcher.standby.rank import hear, hear_news, take_cores, tell, yield_cores
from jobctl.jobspec.launcher.standby.rehearsal import leads_session, rehearse
from jobctl.jobspec.launcher.system.network import meet

if TYPE_CHECKING:
    from typing import Any, ClassVar, Dict, List, NoReturn, Optional, Sequence
MEETING = 30.0  # seconds in which that of the first node listens: it may have to import before
# Seconds in which rank 0 listens, of ranks that a framework's launcher starts: Paddle's may start it half a second after
# another one, as each asks twice a second whether all have come. A rank that is too early loses three.
STAGGERED = 1.0


class ParkedGuard:
    """The guard of a rank that waits, as its parent has it."""

    def __init__(self, node: NodePreparation, environ: Dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self.channel, self.environ = ours, environ
        task = GuardPreparation(node.hook, node.imports, node.command, theirs.fileno(), node.changing)
        self.process = subprocess.Popen(
            node.guard,
            env={**self.environ, "JOBCTL_STANDBY": json.dumps(task.to_json())},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=node.apart,
        )
        theirs.close()

    def hand_over(self, environ: Dict[str, str], log: str, meets: Optional[str]) -> None:
        """Tell it its task. Raises OSError."""
        self.channel.sendall(json.dumps(GuardStart(environ, log, meets, STAGGERED).to_json()).encode() + b"\n")
        self.channel.close()
        self.process.returncode = 0  # from now on another object waits for it: this one must not


class Adopting(subprocess.Popen):  # type: ignore[type-arg]
    """Starts a process; where that is a guard that waits already, it is that one."""

    guards: ClassVar[Dict[str, ParkedGuard]] = {}  # by local rank, once they may be used
    argv: ClassVar[List[str]] = []  # what starts a guard
    local = "LOCAL_RANK"  # the variable that has the local rank
    meets: ClassVar[Sequence[str]] = ()  # the variables with where rank 0 listens, and with the rank
    apart = False
    log = ""

    def __init__(self, args: Any, *rest: Any, **how: Any) -> None:
        self.waiting = self.find(args, rest, how)
        self.wanted: Dict[str, str] = dict(how.get("env") or {})
        self.output = output_of(how) or self.log
        super().__init__(args, *rest, **how)

    @classmethod
    def find(cls, args: Any, rest: Any, how: Dict[str, Any]) -> Optional[ParkedGuard]:
        """Return the guard that waits for this start, None where it is for something else, or has to be another way."""
        if isinstance(args, (str, bytes)) or [*args] != cls.argv:
            return None
        guard = cls.guards.pop((how.get("env") or {}).get(cls.local, ""), None)
        known = {"env", "start_new_session", "close_fds"} | ({"stdout", "stderr"} if output_of(how) else set())
        further = {name for name, value in how.items() if value} - known
        if how.get("preexec_fn") is os.setsid:
            further -= {"preexec_fn"}
        if guard is not None and (rest or further or leads_session(how) != cls.apart):
            guard.channel.close()  # it ends
            return None
        return guard

    def rank_0(self) -> Optional[str]:
        """Return where rank 0 listens for this one; None for rank 0, and where the framework's launcher does not tell."""
        if not self.meets or self.wanted.get(self.meets[1]) == "0":
            return None
        return self.wanted.get(self.meets[0])

    def _execute_child(self, *args: Any) -> None:
        if self.waiting is not None:
            try:
                self.waiting.hand_over(self.wanted, self.output, self.rank_0())
            except OSError:
                self.waiting.process.kill()  # and what is below it with it
                self.waiting.process.wait()
            else:
                self.pid: int = self.waiting.process.pid
                self._child_created = True
                return
        super()._execute_child(*args)  # type: ignore[misc]


def output_of(how: Dict[str, Any]) -> Optional[str]:
    """Return the file that is to get all that a process prints; None where it is not one file on a disk."""
    file: Any = how.get("stdout")
    together = file is how.get("stderr")
    if file is None or not together:
        return None
    try:
        number: int = file.fileno()
        return os.readlink("/proc/self/fd/%d" % number) if stat.S_ISREG(os.fstat(number).st_mode) else None
    except (AttributeError, OSError):
        return None


class Entry:
    """The framework's launcher, imported behind all that runs; `name` is its module, or `module:function`.

    A function is without arguments: it finds them in `sys.argv`. A module alone has a `main` that gets them.
    """

    def __init__(self, name: str) -> None:
        import importlib

        module, _, self.function = name.partition(":")
        sys.path[0] = os.getcwd()
        before = dict(os.environ)
        cores = yield_cores(idle=False)  # what is started from here must not inherit that
        self.module = importlib.import_module(module)
        self.pauses = LauncherPauses(module)
        take_cores(*cores)
        names = before.keys() | os.environ.keys()
        self.changes = {name: os.environ.get(name) for name in names if before.get(name) != os.environ.get(name)}

    def run(self, argv: Sequence[str]) -> Any:
        """Run it, as `python -m` would."""
        path = str(self.module.__file__)
        if not self.function:
            sys.argv = [path, *argv]
            return self.module.main(argv)
        sys.argv = [os.path.join(os.path.dirname(path), "__main__.py"), *argv]
        return getattr(self.module, self.function)()

    def begin_with(self, environ: Dict[str, str]) -> None:
        """Have the variables that it would have after its import."""
        os.environ.clear()
        os.environ.update(environ)
        for name, value in self.changes.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
    entry: Optional[Entry] = None
    if node.trial is not None:  # nobody knows yet what the guards begin with
        entry = Entry(node.module)
        trial = changed(node.trial, guard=own_interpreter(node.trial.guard))
        found = rehearse(entry.run, trial)
        if found.off is not None:
            give_up(channel, found.off)
        node = changed(node, environs=found.environs, apart=found.apart)
    guards = {}
    for environ in node.environs:
        one = guards[environ[node.local]] = ParkedGuard(node, environ)
        said = hear_news(one.channel.fileno()) or StandbyNews(off="the guard of a rank that waits has ended")
        if said.off is not None:
            give_up(channel, said.off)
    entry = entry or Entry(node.module)
    tell(channel, StandbyNews(ready=True))
    start = wait_for_start(channel, guards)
    os.close(channel)
    append_to(start.log)
    entry.begin_with(start.environ)
    Adopting.guards, Adopting.argv, Adopting.log = guards, own_interpreter(start.guard), start.log
    Adopting.apart, Adopting.local, Adopting.meets = node.apart, node.local, node.meets
    entry.pauses.shorten(start.gathering)
    meet(start.gathering.place, MEETING)
    sys.exit(entry.run(start.argv))


def own_interpreter(argv: Sequence[str]) -> List[str]:
    """Return an argv that begins with nothing where the interpreter of this process is meant."""
    return [argv[0] or sys.executable, *argv[1:]]


def wait_for_start(channel: int, guards: Dict[str, ParkedGuard]) -> FrameworkStart:
    """Return what to run; end where there will be nothing, or where a rank that waits has ended."""
    ready, _, _ = select.select([channel, *(guard.channel.fileno() for guard in guards.values())], [], [])
    said = hear(channel) if channel in ready else None
    if said is None:
        os._exit(0)
    return FrameworkStart.from_json(said)
