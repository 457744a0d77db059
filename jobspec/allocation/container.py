"""A node's container on a machine of the allocation: what a node runner does around it, and its first process.

The processes of an engine need not be those of the node runner, and do not die with it. So the runner holds a pipe open,
and the first process in the container ends all that is there once nobody does.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import say
from jobctl.jobspec.launcher.system.files import read_json, write_json
from jobctl.jobspec.launcher.system.processes import (
    SIGNALS,
    adopt_orphans,
    die_with_parent,
    forward_signal,
    kill_descendants,
    reap,
)

if TYPE_CHECKING:
    import argparse
    from typing import Any, Dict, List, Optional

    from jobctl.jobspec.launcher.system.files import Json
CHILD_POLL_INTERVAL = 0.1  # seconds between two looks of the first process at what it has started
REMOVING = 30.0  # seconds within which an engine has to remove a container
# Of a job's environment on a node, what its containers get: all else is about the programs of the node.
PASSED = ("SLURM_",)
VISIBLE = ("_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
KEPT_BACK = ("SLURM_JWT",)  # a token for Slurm's own programs


class ContainerHold:
    """What keeps a node's container alive. `own` is what is this machine's own of the job's directory."""

    def __init__(self, work: str, own: str) -> None:
        self.work, self.own = work, own
        self.pipe: Optional[int] = None

    def take(self, environ: Dict[str, str]) -> None:
        """Hold the pipe, and write down which variables the container gets."""
        self.let_go()
        path = os.path.join(self.own, "alive")
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o644)
        self.pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        write_json(os.path.join(self.own, "environ.json"), passed(environ))

    def let_go(self) -> None:
        """Have all that is in the container end at once, whatever the engine does."""
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def remove(self) -> None:
        """Remove what the container has left."""
        self.let_go()
        argv = ["sh", os.path.join(self.work, "start.sh"), "end", "", "", self.own]
        try:
            code = subprocess.call(argv, stdin=subprocess.DEVNULL, timeout=REMOVING)
        except subprocess.TimeoutExpired:
            code = 124
        if code:
            say("cannot remove the container of this machine (exit code %d)" % code)


def passed(environ: Dict[str, str]) -> Dict[str, str]:
    """Return the variables of a job's environment on a node that its containers get."""
    return {
        name: value
        for name, value in environ.items()
        if (name.startswith(PASSED) or name.endswith(VISIBLE)) and name not in KEPT_BACK
    }


def why_ended(work: str, settings: Json, hosts: Dict[int, str], node: int, code: int) -> str:
    """Return why a node has failed: as a launcher says, or what is known if none does. `hosts`: the machines of all nodes."""
    paths = [os.path.join(work, "node-%d" % n, "report.json") for n in (node, *hosts)]
    reports = [read_json(path) or {} for path in paths]
    told = [(report.get("order") or {}).get("why") for report in reports]
    failed = [report.get("reason") for report in reports if report.get("failure")]
    words = next(filter(None, [*told, *failed]), None)
    if words is not None:
        return str(words)
    if settings["container"] == "none":
        return "node %d failed" % node
    words = "node %d failed on %s: its container ended with exit code %d before a process did"
    return (words + "; slurm.out has what %s said") % (node, hosts[node], code, settings["container"])


class FirstProcess:
    """The first process of a container: it runs a command until that ends, or its node runner does.

    `look`: a person sits at the terminal, which sends Ctrl-C to all processes by itself.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.own, self.look, self.workdir = options.own, options.look, options.workdir or None
        self.given = options.environ
        told = read_json(os.path.join(self.own, "environ.json")) or {}
        counting = [name for name in told if options.named_devices and name.endswith(VISIBLE)]
        self.environ = {**os.environ, **{name: told[name] for name in told if name not in counting}}
        self.secrets: Json = (read_json(options.secrets) or {}) if options.secrets else {}
        self.child: Optional[subprocess.Popen[bytes]] = None
        self.early: List[int] = []

    def run(self, argv: List[str]) -> int:
        """Run `argv`; return its exit code."""
        variables = read_json(self.given) if self.given else {}
        if variables is None:
            sys.stderr.write("cannot read %s as user %d\n" % (self.given, os.getuid()))
            return 126
        self.environ = {**self.environ, **variables, **self.secrets}
        pipe = os.open(os.path.join(self.own, "alive"), os.O_RDONLY | os.O_NONBLOCK)
        adopt_orphans()
        for number in SIGNALS:
            signal.signal(number, self.on_signal)
        try:
            self.child = subprocess.Popen(argv, env=self.environ, cwd=self.workdir, preexec_fn=die_with_parent)
        except OSError as error:
            sys.stderr.write("%s: %s\n" % (error.filename or argv[0], error.strerror))
            return 127 if isinstance(error, FileNotFoundError) else 126
        for missed in self.early:
            forward_signal(self.child.pid, missed)
        while True:
            code = reap().get(self.child.pid)
            if code is not None or is_alone(pipe):
                kill_descendants()
                return 137 if code is None else code
            select.select([], [], [], CHILD_POLL_INTERVAL)

    def on_signal(self, number: int, frame: Any) -> None:
        """Pass a signal on."""
        if self.look and number in (signal.SIGINT, signal.SIGQUIT):
            return
        if self.child is None:
            self.early.append(number)
        else:
            forward_signal(self.child.pid, number)


def is_alone(pipe: int) -> bool:
    """Say whether nobody holds the other end of a pipe."""
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False
