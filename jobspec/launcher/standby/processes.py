"""The guards of a node's processes that wait, where its launcher starts each process itself.

    I
    └─ S_k  guard of process k, forked as for a process that runs; waits for its task
       └─ W_k  its interpreter, in `park` (guard.py)

They import one after another. What the first one takes tells what the others will.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.process.guard import ABANDONED, fork_guard
from jobctl.jobspec.launcher.standby.guard import parked_guard, write_hook
from jobctl.jobspec.launcher.standby.messages import GuardPreparation, GuardStart, StandbyNews
from jobctl.jobspec.launcher.system.pipe import MessagePipe
from jobctl.jobspec.launcher.system.processes import forward_signal, start_ticks

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Union

    from jobctl.jobspec.launcher.node.idle_standby import Expected
    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.run.run import Run
    from jobctl.jobspec.launcher.standby.messages import FrameworkStart

    Trained = Union[Run, Expected]
SENT = 1.0  # seconds in which what waits takes its order


def send(pipe: MessagePipe, start: Union[GuardStart, FrameworkStart]) -> bool:
    """Tell what waits to start, and close the connection; say whether all of it was sent."""
    until = time.monotonic() + SENT
    pipe.send(start.to_json())
    while pipe.out and time.monotonic() < until:
        time.sleep(0.01)
        pipe.flush()
    sent = not pipe.out and not pipe.closed
    pipe.socket.close()
    return sent


class ParkedProcess:
    """The guard of one process that waits. Raises OSError."""

    def __init__(self, launch: Launch, hook: str, environ: Dict[str, str], log: int) -> None:
        assert launch.standby is not None
        self.ready = False
        ours, theirs = socket.socketpair()
        try:
            wanted = launch.standby
            task = GuardPreparation(hook, wanted.imports, launch.command, theirs.fileno(), wanted.changing)
            guard = functools.partial(parked_guard, task, environ)
            self.pid = fork_guard(guard, launch.workdir, log, theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pipe = MessagePipe(ours)
        self.ticks = start_ticks(self.pid)

    def heard(self) -> List[StandbyNews]:
        """Return what it has said since."""
        return [StandbyNews.from_json(said) for said in self.pipe.receive()]

    def waits(self) -> bool:
        """Say whether it can be used."""
        return self.ready and not self.heard() and not self.pipe.closed

    def end(self) -> None:
        """End it, with all that is below it."""
        if start_ticks(self.pid) == self.ticks:  # else it was reaped, and the number may be another's
            forward_signal(self.pid, ABANDONED)
        self.pipe.socket.close()


class ParkedProcesses:
    """The guards that wait, by local rank; the first of them begins at once. Raises OSError."""

    def __init__(self, run: Trained) -> None:
        self.launch, self.environment, self.node = run.launch, run.environment, run.folders.node
        self.processes: Dict[int, ParkedProcess] = {}
        self.ready = False
        self.memory = 0  # what one takes, in bytes
        self.hook = os.path.join(self.node, "standby")
        write_hook(self.hook, os.path.abspath(__file__))
        self.go_on()

    def pids(self) -> List[int]:
        """Return the pids of the guards."""
        return [process.pid for process in self.processes.values()]

    def missing(self) -> List[int]:
        """Return the local ranks for which none has begun."""
        return [local for local in range(self.launch.nproc) if local not in self.processes]

    def price(self) -> Optional[int]:
        """Return how much memory those take that are missing, None while there is none to begin."""
        return len(self.missing()) * self.memory if self.missing() and not self.imports else None

    @property
    def imports(self) -> bool:
        """Whether one of them imports. Others may be missing, as one that was taken alone is for a while."""
        return not all(process.ready for process in self.processes.values())

    def go_on(self) -> None:
        """Begin the next one. Raises OSError."""
        local = self.missing()[0]
        environ = self.environment.process_environ(local)
        with open(os.path.join(self.node, "logs", "standby.log"), "ab") as log:
            self.processes[local] = ParkedProcess(self.launch, self.hook, environ, log.fileno())

    def heard(self) -> List[StandbyNews]:
        """Return why one of them cannot wait, or, once, that all do."""
        for process in self.processes.values():
            for said in process.heard():
                if said.off is not None:
                    return [said]
                process.ready, self.memory = True, max(self.memory, said.memory or 0)
        ready = not self.missing() and all(process.ready for process in self.processes.values())
        return [StandbyNews(ready=True)] if ready and not self.ready else []

    @property
    def ended(self) -> bool:
        """Whether one of them has ended by itself."""
        return any(process.pipe.closed for process in self.processes.values())

    def end(self) -> None:
        """End all of them."""
        for process in self.processes.values():
            process.end()

    def take(self, local: int) -> Optional[ParkedProcess]:
        """Return the one of a local rank, which is missing from now on."""
        self.ready = False
        return self.processes.pop(local, None)
