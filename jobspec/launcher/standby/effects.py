"""What an import changes in its process beside modules and variables: handlers of logging and signals, finders, filters.

It is undone while a rank waits, so that the script begins without it, and done again by the script's own import. Where the
script has changed the same by then, the import might have done something else: then the rank goes on cold.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.system.processes import signal_action

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Dict, List, Optional, Tuple

# Lists to whose ends imports add: a script that has changed them too gets the same at the ends of its own.
GROWING = ("sys.meta_path", "sys.path_hooks", "the filters of warnings")
HANDLERS, LEVEL = "the handlers of the root logger", "the level of the root logger"
DEPTH, CORES = "sys.getrecursionlimit()", "the cores that it may use"
NUMBERS = tuple(sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}))


@functools.lru_cache(maxsize=None)
def logs() -> ModuleType:
    """Return `logging`, the same one each time. It is a tenth of what a guard imports, and only a standby needs it."""
    import logging

    return logging


def hooks() -> Dict[str, Tuple[ModuleType, str]]:
    """Return the module and the attribute of each hook, by what users read."""
    found = (
        *((sys, name) for name in ("excepthook", "displayhook", "unraisablehook")),
        *((threading, "excepthook"), (warnings, "showwarning"), (logs(), "lastResort")),
    )
    return {"%s.%s" % (module.__name__, name): (module, name) for module, name in found}


def lists() -> Dict[str, List[Any]]:
    """Return the lists themselves."""
    return {
        "sys.meta_path": sys.meta_path,
        "sys.path_hooks": sys.path_hooks,
        "the filters of warnings": warnings.filters,
        HANDLERS: logs().root.handlers,
    }


def state_of_process() -> Dict[str, Any]:
    """Return all that is looked at."""
    state: Dict[str, Any] = {name: list(items) for name, items in lists().items()}
    state[LEVEL], state[DEPTH], state[CORES] = logs().root.level, sys.getrecursionlimit(), os.sched_getaffinity(0)
    state.update((name, getattr(*hook)) for name, hook in hooks().items())
    state.update((name_of_handler(number), (signal_action(number), signal.getsignal(number))) for number in NUMBERS)
    return state


def name_of_handler(number: int) -> str:
    """Return what users read."""
    return "the handler of signal %d" % number


def set_state(name: str, value: Any) -> None:
    """Set one thing that `state_of_process` returns."""
    if name in lists():
        lists()[name][:] = value
        with warnings.catch_warnings():  # has the interpreter look at its filters anew, in each version of Python
            pass
    elif name == LEVEL:
        logs().root.setLevel(value)
    elif name == DEPTH:
        sys.setrecursionlimit(value)
    elif name == CORES:  # OpenMP's library binds the first thread as it is loaded, if OMP_PROC_BIND says so
        os.sched_setaffinity(0, value)
    elif name in SIGNALS_BY_NAME:
        number = SIGNALS_BY_NAME[name]
        raw, handler = value
        if signal.getsignal(number) is not handler and handler is not None:
            signal.signal(number, handler)
        signal_action(number, raw)
    else:
        module, attribute = hooks()[name]
        setattr(module, attribute, value)


SIGNALS_BY_NAME = {name_of_handler(number): number for number in NUMBERS}


class Effects:
    """What an import has changed, from one state to another."""

    def __init__(self, before: Dict[str, Any], after: Dict[str, Any]) -> None:
        names = [name for name in before if before[name] != after[name]]
        self.changes: Dict[str, Tuple[Any, Any]] = {name: (before[name], after[name]) for name in names}

    def undo(self) -> None:
        """Have this process be as it was."""
        for name, (was, _) in self.changes.items():
            set_state(name, was)

    def parts(self, growing: bool) -> List[str]:
        """Return the names of what was changed; only of lists that were added to, if `growing`."""
        return [name for name in self.changes if name in GROWING or not growing]

    def conflict(self, growing: bool = False) -> Optional[str]:
        """Return what the script has changed that the import changes too, None if there is nothing."""
        now = state_of_process()
        for name in self.parts(growing):
            was, then = self.changes[name]
            if now[name] != was and not (name in GROWING and ends(was, then)):
                return name
        return None

    def repeat(self, growing: bool = False) -> None:
        """Do it again; only what was added to lists, if `growing`."""
        now = state_of_process()
        for name in self.parts(growing):
            was, then = self.changes.pop(name)
            first, last = ends(was, then) or ([], [])
            if now[name] != was:
                then = first + [item for item in now[name] if item not in first + last] + last
            set_state(name, then)


def ends(was: Any, then: Any) -> Optional[Tuple[List[Any], List[Any]]]:
    """Return what was added at the beginning and at the end of a list, None where something else was done to it."""
    if not isinstance(was, list):
        return None
    for at in range(len(then) - len(was) + 1):
        if then[at : at + len(was)] == was:
            return then[:at], then[at + len(was) :]
    return None
