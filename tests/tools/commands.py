"""Run `jobctl` as a process of its own, without its imports: half a second of CPU a command, which tests run by the thousand.

A process that has imported all of jobctl, and compiled a job once, forks one for each command, and for the supervisor that
a command leaves behind. That one has its own environment, directory and standard streams, and frees no memory as it ends.
Tests of how long imports take, and of signals, start real ones.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, cast

T = TypeVar("T")
HEAVY = ("docker", "fabric", "jinja2", "paramiko", "yaml")  # imported by commands when they need them


def run(
    argv: tuple[str, ...], cwd: Path, environ: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `jobctl` with `argv` to its end. Raises TimeoutExpired, with what it has printed, after it was killed."""
    return _run(argv, cwd, environ, timeout, _text, None)


def run_bytes(
    argv: tuple[str, ...], cwd: Path, environ: Mapping[str, str], timeout: float, stdin: IO[bytes] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run `jobctl` likewise, on what `stdin` has; what it prints is bytes."""
    return _run(argv, cwd, environ, timeout, _bytes, stdin)


def _run(
    argv: tuple[str, ...],
    cwd: Path,
    environ: Mapping[str, str],
    timeout: float,
    read: Callable[[IO[bytes]], T],
    stdin: IO[bytes] | None,
) -> subprocess.CompletedProcess[T]:
    command = Command(argv, cwd, environ, stdin)
    try:
        command.wait(timeout)
    except subprocess.TimeoutExpired:
        command.kill()
        command.wait()
        out, err = (cast(Any, read(printed)) for printed in (command.out, command.err))
        raise subprocess.TimeoutExpired(argv, timeout, out, err) from None
    return subprocess.CompletedProcess(argv, command.wait(), read(command.out), read(command.err))


class _Forked:
    """A process that the server forks, as its parent sees it."""

    returncode: int | None = None

    def __init__(self, server: Path, order: Mapping[str, Any], files: Sequence[IO[bytes]]) -> None:
        self.open = contextlib.ExitStack()
        weakref.finalize(self, self.open.close)
        self.link = self.open.enter_context(socket.socket(socket.AF_UNIX))
        self.link.connect(str(server))
        text = json.dumps(order).encode()
        socket.send_fds(self.link, [b"%16d" % len(text)], [file.fileno() for file in files])
        self.link.sendall(text)
        self.lines = self.open.enter_context(self.link.makefile("r"))
        self.pid = int(self.lines.readline())

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code when it has ended. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self.link], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = int(self.lines.readline())
        return self.returncode

    def poll(self) -> int | None:
        """Return its exit code once it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def kill(self) -> None:
        """Send it SIGKILL, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, signal.SIGKILL)


class Command(_Forked):
    """`jobctl` with `argv`, on what `stdin` has."""

    def __init__(
        self, argv: tuple[str, ...], cwd: Path, environ: Mapping[str, str], stdin: IO[bytes] | None = None
    ) -> None:
        with contextlib.ExitStack() as stack:
            self.out, self.err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            null = stdin or stack.enter_context(open(os.devnull, "rb"))
            order = {"argv": argv, "cwd": str(cwd), "environ": dict(environ)}
            super().__init__(_server(), order, (null, self.out, self.err))
            self.open.enter_context(stack.pop_all())

    def printed(self) -> tuple[str, str]:
        """Return what it has printed to stdout, and to stderr."""
        return _text(self.out), _text(self.err)


def _text(file: IO[bytes]) -> str:
    return _bytes(file).decode(errors="replace").replace("\r\n", "\n")


def _bytes(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


@functools.cache
def _server() -> Path:
    """Start the process that forks, and return its socket. It ends with this one."""
    path = Path(tempfile.mkdtemp(prefix="jobctl-commands-")) / "socket"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBCTL_")}
    argv = [sys.executable, __file__, str(path)]
    process = subprocess.Popen(argv, env=clean, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return path


# What follows runs in that process.


def _serve(path: Path) -> Callable[[], None]:
    """Fork a process for each request, and return what that one has to do; exit with whoever started this one."""
    import gc
    import importlib

    import jobctl

    _import_all(jobctl)
    for name in HEAVY:
        importlib.import_module(name)
    _compile_once()
    importlib.import_module("pydantic").TypeAdapter(int)  # which looks for plugins, the first time
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(64)
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that tells of its end: pid, and who waits
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([0, server.fileno(), *running], [], [])
        if 0 in ready:
            path.unlink()
            path.parent.rmdir()
            sys.exit()
        for ended in [one for one in running if one in ready]:
            pid, link = running.pop(ended)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(ended)
            with link, contextlib.suppress(OSError):
                link.sendall(b"%d\n" % code)
        if server.fileno() in ready:
            link, _ = server.accept()
            head, files, _, _ = socket.recv_fds(link, 16, 3)
            with link.makefile("rb") as text:
                order = json.loads(text.read(int(head)))
            pid = os.fork()
            if pid == 0:
                for descriptor in running:
                    os.close(descriptor)
                for other in (server, link, *(other for _, other in running.values())):
                    other.close()
                return functools.partial(_become, order, files, path)
            for file in files:
                os.close(file)
            link.sendall(b"%d\n" % pid)
            running[os.pidfd_open(pid)] = pid, link


def _import_all(package: Any) -> None:
    import importlib
    import pkgutil

    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _compile_once() -> None:
    """Plan and render a job, and read it back: what is built at the first use takes as long as the rest of a command."""
    from dataclasses import asdict

    from jobctl.jobspec import load, plan, render
    from jobctl.jobspec.deploy.model import control, inventory
    from jobctl.jobspec.operations import Where
    from jobctl.jobspec.plan import generation, serial
    from jobctl.jobspec.spec.hosts import Host

    with tempfile.TemporaryDirectory() as folder:
        spec, hosts = Path(folder) / "job.yaml", Path(folder) / "hosts.txt"
        spec.write_text("name: warm\nframework: torch\nimage: none:1\ncommand: [python3]\nper: node\nnodes: 2\n")
        hosts.write_text("h1 addr=10.0.0.1\nh2 addr=10.0.0.2\n")
        for target in ("compose", "ssh"):
            made = plan(load(spec, Where(target=target, hosts=hosts)))
            list(render(made))
    serial.load_plan(serial.dump_plan(made))
    first = json.loads(json.dumps(asdict(generation.first_generation(made))))
    control.parse_control(first, json.loads(control.ledger_json(control.Ledger(0.0))))
    kept = inventory.Inventory((Host("h1"),), inventory.SshOptions())
    inventory.load_inventory(json.loads(json.dumps(inventory.dump_inventory(kept))))


def _leave_behind(
    server: Path, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, stdout: IO[bytes], **others: Any
) -> _Forked:
    """Have the server fork the supervisor that a command leaves behind, in a session of its own.

    The server has the limit of open files that the command began with.
    """
    from jobctl.jobspec.deploy.transport.descriptors import for_child

    assert list(argv[:3]) == [sys.executable, "-m", "jobctl"], argv
    wanted = {"stdin": subprocess.DEVNULL, "stderr": stdout, "start_new_session": True, "preexec_fn": for_child()}
    assert others == wanted
    with open(os.devnull, "rb") as null:
        order = {"argv": argv[3:], "cwd": cwd, "environ": dict(env), "session": True}
        return _Forked(server, order, (null, stdout, stdout))


def _become(order: dict[str, Any], files: list[int], server: Path) -> None:
    """Become the command."""
    import types

    from jobctl.jobspec.deploy.targets import background
    from jobctl.main import main

    popen = functools.partial(_leave_behind, server)
    background.subprocess = types.SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment,attr-defined]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        errors = "backslashreplace" if name == "stderr" else None
        stream = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environ"])
    time.tzset()
    sys.argv = ["jobctl", *order["argv"]]
    if order.get("session"):
        os.setsid()
        _show([sys.executable, "-m", *sys.argv])
    try:
        main()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        _leave(ended.code or 0)
    _leave(0)


def _leave(code: int) -> None:
    """End as an interpreter does, but free nothing: that would copy all pages of the process that this one is a fork of.

    It would be half of what a command costs.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


PR_SET_MM, PR_SET_MM_MAP = 35, 14  # of prctl(2)
NO_FILE = 2**32 - 1
shown: list[Any] = []  # stays as long as the process


def _show(argv: list[str]) -> None:
    """Have /proc show this process as what it is: a supervisor is found by what stands there. Where that fails, start a real one."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    places = []
    for words in (argv, [f"{name}={value}" for name, value in os.environ.items()]):
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        shown.append(ctypes.create_string_buffer(text, len(text)))
        places += [ctypes.addressof(shown[-1]), ctypes.addressof(shown[-1]) + len(text)]
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    # Where code begins and ends, data begins and ends, and the heap begins, as they are: fields 26, 27 and 45 to 47.
    kept = [int(fields[number - 3]) for number in (26, 27, 45, 46, 47)]
    stack = int(fields[28 - 3])
    order = struct.pack("11QQII", *kept, libc.sbrk(0), stack, *places, 0, 0, NO_FILE)
    if libc.prctl(PR_SET_MM, PR_SET_MM_MAP, order, ctypes.c_ulong(len(order)), ctypes.c_ulong(0)):
        os.execv(sys.executable, argv)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))()
