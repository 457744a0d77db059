"""Run `jobctl` as a process of its own, without its imports: half a second of CPU a command, which tests run by the thousand.

A process that has imported all of jobctl forks one for each command. That one has its own environment, directory and standard
streams, and ends as any interpreter does. The supervisors that such commands start are forked likewise, each with its own
session, and with its own command line and environment in /proc. Tests of how long imports take, and of signals, start real
ones (`Jobs.popen`); so are the supervisors of those.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, TypeVar

T = TypeVar("T")
# Imported by commands when they need them.
HEAVY = ("docker", "fabric", "jinja2", "paramiko", "pydantic.dataclasses", "pydantic.type_adapter", "yaml")
ROOM = 32768  # bytes for the command line of a supervisor, and as many for its environment


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
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        null = stdin or stack.enter_context(open(os.devnull, "rb"))
        order = {"argv": argv, "cwd": str(cwd), "environ": dict(environ), "shown": None}
        link = stack.enter_context(_ask(_server(), order, [file.fileno() for file in (null, *files)]))
        code = _answer(link, time.monotonic() + timeout)
        out, err = (read(file) for file in files)
    if code is None:
        raise subprocess.TimeoutExpired(argv, timeout, out, err)
    return subprocess.CompletedProcess(argv, code, out, err)


def _ask(server: Path, order: Mapping[str, Any], files: list[int]) -> socket.socket:
    """Have a process forked whose standard streams are `files`; return where its pid and its exit code will be told."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(server))
    text = json.dumps(order).encode()
    socket.send_fds(link, [b"%16d" % len(text)], files)
    link.sendall(text)
    return link


def _answer(link: socket.socket, deadline: float) -> int | None:
    """Return the exit code that the server tells, None if the command had to be killed."""
    with link.makefile("r") as lines:
        pid = int(lines.readline())
        if select.select([link], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return int(lines.readline())
        os.kill(pid, signal.SIGKILL)
        lines.readline()
    return None


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
    argv = [sys.executable, __file__, str(path), " " * ROOM]
    process = subprocess.Popen(
        argv, env={**clean, "ROOM": " " * ROOM}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
    )
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
    importlib.import_module("pydantic").TypeAdapter(int)  # which looks for plugins, the first time
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(64)
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that tells of its end: pid, and who waits
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([0, server, *running], [], [])
        if 0 in ready:
            path.unlink()
            path.parent.rmdir()
            sys.exit()
        for ended in set(ready) & set(running):
            pid, link = running.pop(ended)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(ended)
            with link, contextlib.suppress(OSError):
                link.sendall(b"%d\n" % code)
        if server in ready:
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


def _become(order: dict[str, Any], files: list[int], server: Path) -> None:
    """Become the command."""
    from jobctl.jobspec.deploy.targets import background
    from jobctl.main import main

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
    if order["shown"]:
        os.setsid()
        _show(order["shown"], order["environ"])
    started = functools.partial(_Supervisor, server)
    background.subprocess = SimpleNamespace(Popen=started, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]
    sys.argv = ["jobctl", *order["argv"]]
    main()


class _Supervisor:
    """What `up` knows of the supervisor that it has started: as much of `subprocess.Popen` as it asks for."""

    def __init__(
        self,
        server: Path,
        argv: list[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: IO[bytes],
        stderr: IO[bytes],
        start_new_session: bool,
        cwd: str,
    ) -> None:
        assert argv[:3] == [sys.executable, "-m", "jobctl"]
        assert (stdin, start_new_session) == (subprocess.DEVNULL, True)
        order = {"argv": argv[3:], "cwd": cwd, "environ": dict(env), "shown": argv}
        with open(os.devnull, "rb") as null:
            self._link = _ask(server, order, [file.fileno() for file in (null, stdout, stderr)])
        self._lines = self._link.makefile("r")
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._link], [], [], 0.0)[0]:
            self.returncode = int(self._lines.readline())
        return self.returncode


def _show(argv: list[str], environ: Mapping[str, str]) -> None:
    """Have /proc tell this command line and environment of this process: those who look for a supervisor go by them.

    What the kernel has put there for the process that forks has room enough for them.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, variables = (int(fields[n]) for n in (45, 46)), (int(fields[n]) for n in (47, 48))
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for (begin, end), words in ((arguments, argv), (variables, [f"{k}={v}" for k, v in environ.items()])):
            data = b"".join(os.fsencode(word) + b"\0" for word in words)
            assert len(data) <= end - begin, "no room for the command line or the environment"
            memory.seek(begin)
            memory.write(data.ljust(end - begin, b"\0"))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))()
