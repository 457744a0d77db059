"""The end of a command's `srun` on a login node: it goes on by itself where nobody joins it to a terminal any more.

It ends its step, wherever that runs, as soon as it gets SIGTERM.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.slurm.scripts import SCRIPTS
from jobctl.jobspec.deploy.transport.base import Transport
from jobctl.jobspec.deploy.transport.local import LocalTransport

STDOUT = 1
LOOK = 500  # milliseconds between two looks whether anybody reads what a command prints


@contextmanager
def ends_here(transport: Transport, mark: str, *, terminal: bool) -> Iterator[None]:
    """End what has a mark in its environment on the login node where the block does, or nobody reads its output any more."""

    def end() -> None:
        with suppress(HostError):  # its connection may be lost as well
            transport.run(SCRIPTS.argv("hang_up", mark))

    # Over SSH, an exception tells that. On this machine the output is not ours, and `srun` goes on without a reader.
    watched = not terminal and isinstance(transport, LocalTransport)
    try:
        with _unread(end) if watched else nullcontext():
            yield
    except HostError:  # its connection is lost
        raise
    except BaseException:
        end()
        raise


@contextmanager
def _unread(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once nobody reads what this process prints, at most until the block ends."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(over, act), daemon=True, name="unread")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(over: threading.Event, act: Callable[[], None]) -> None:
    watch = select.poll()
    watch.register(STDOUT, 0)  # where it is a pipe without a reader, an error comes all the same
    while not over.is_set():
        if watch.poll(LOOK):
            act()
            return
