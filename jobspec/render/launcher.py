"""The program that every host gets: the files of jobspec/launcher, joined into one.

A host, a ConfigMap and a container take one file as it is, and a person can read it there: a heading names the file that
follows, so a line of a traceback is found by the heading above it. A zip was tried, and starts a quarter slower, since it
is compiled at each start.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

# From the bottom up, by folder: each file imports only from those before it.
_LAUNCHER = (
    ("", "records"),
    ("system/", "files bytecode processes memory deadline network pipe"),
    ("", "failure restart_policy"),
    ("order/", "launch control autonomy_terms order_news order whole_order"),
    ("process/", "task log_files record guard"),
    ("report/", "node_report progress stragglers report event_log story"),
    (
        "standby/",
        "messages effects inherited loggers import_hooks imports rank rehearsal guard pauses launcher processes standby",
    ),
    ("run/", "scratch stacks setup environment in_place verdict run"),
    ("peers/", "lease incarnations messages stack_barrier old_places orders addresses done_nodes peers"),
    ("etcd/", "client session_messages session_lease keys session"),
    ("telling/", "words notification news payloads webhook storm telling host_teller"),
    ("recovery/", "control_file autonomy replacement etcd_replacement going_back self_recovery"),
    ("node/", "run_watcher idle_standby agent idle guard"),
    ("", "main"),
)
ORDER = tuple(f"{folder}{name}" for folder, names in _LAUNCHER for name in names.split())
# The program inside an allocation of Slurm, with what it takes from the launcher.
_TAKEN = ("system/files", "system/processes", "restart_policy", "order/control", "system/network")
_ALLOCATION = """
messages nodelist record generation slurm_environ scheduler succession container launching node_runner image look places refusals size
orders interrupted coordinator main
"""
ALLOCATION = (*(("launcher", name) for name in _TAKEN), *(("allocation", name) for name in _ALLOCATION.split()))
_TYPES = """\
TYPE_CHECKING = False  # for those who read this file: nothing of it is imported where it runs
if TYPE_CHECKING:
    import argparse
    from types import ModuleType
    from typing import Any, Callable, ClassVar, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NoReturn, Optional
    from typing import Sequence, Set, Tuple, Type, Union, Unpack

    Json = Dict[str, Any]
    Failed = Tried = Any  # what restart_policy.py describes
    Lease = Any  # what peers/lease.py describes
    Line = Shorter = Any  # what standby/pauses.py describes
    OrderKeeper = Any  # what recovery/autonomy.py describes
    ProgressChanges = ReportChanges = Any  # what report/node_report.py describes
    T = Any  # any record
    Value = Any  # text, or a Slot of order/launch.py
    Waiting = Any  # a ParkedRank of standby/guard.py
    ParkedNode = Any  # a Parked of standby/standby.py, or ParkedProcesses
    Trained = Any  # a Run, or what an Expected of node/idle_standby.py expects

"""


@cache
def launcher() -> bytes:
    """Return the shared launcher, as it is sent to every host."""
    return _joined("launcher", [("launcher", name) for name in ORDER])


@cache
def allocation() -> bytes:
    """Return the program that a batch script of Slurm becomes, and that runs on each node of the allocation."""
    return _joined("allocation", ALLOCATION)


def _joined(package: str, parts: Sequence[tuple[str, str]]) -> bytes:
    """Return files of our packages as one program; its first lines say what the package is."""
    bodies = [_divided(*part) for part in parts]
    imports = sorted({line for lines, _ in bodies for line in lines})
    head = [
        "#!/usr/bin/env python3",
        _source(package, "__init__"),
        "from __future__ import annotations",
        "",
        *imports,
        "",
        _TYPES,
    ]
    text = "\n".join([*head, *(text for _, text in bodies)])
    return (text.rstrip() + "\n").encode()  # with one line feed at its end, YAML takes it as it is


def _source(package: str, name: str) -> str:
    return files(f"jobctl.jobspec.{package}").joinpath(f"{name}.py").read_text(encoding="utf-8")


def _divided(package: str, name: str) -> tuple[list[str], str]:
    """Return the imports of a file from the standard library, and its code below a heading.

    What it imports from its neighbours, or for type checkers only, is left out.
    """
    docstring, _, code = _source(package, name)[3:].partition('"""\n')
    lines = code.splitlines()
    imports: list[str] = []
    end, block = 0, False  # block: in what only type checkers read, or in an import of several lines
    for line in lines:
        if line.startswith("import "):
            imports.append(line)
        elif not (block and line[:1] in (" ", ")")) and line and not line.startswith(("from ", "if TYPE_CHECKING:")):
            break
        block = line.endswith(("(", ":")) or (block and not line.startswith(")"))
        end += 1
    heading = f"# --- {package}/{name}.py ".ljust(119, "-")
    comment = [f"# {line}".rstrip() for line in docstring.strip().splitlines()]
    return imports, "\n".join([heading, *comment, "", *lines[end:], "", ""])
