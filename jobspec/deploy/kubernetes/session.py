"""A command in a pod's container that has this terminal (or pipes) until it ends: over a websocket of the API."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import sys
from collections.abc import Sequence
from typing import Any

from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.kinds import POD
from jobctl.jobspec.deploy.kubernetes.problems import Call, Cut, refused_websocket
from jobctl.jobspec.deploy.model.errors import CannotRun, DeployError
from jobctl.jobspec.deploy.transport.base import CHUNK
from jobctl.jobspec.deploy.transport.ending import ended_by_signals
from jobctl.jobspec.deploy.transport.terminal import STDIN, Resizes, raw, resizes, window
from jobctl.jobspec.records import dataclass

# Channels of the protocols v4.channel.k8s.io and v5.channel.k8s.io; only v5 can say that input has ended.
IN, OUT, ERR, RESULT, RESIZE = range(5)


class PodSession:
    """One command in the container of a pod."""

    def __init__(self, api: Api, pod: str, container: str) -> None:
        self.api, self.pod, self.container = api, pod, container

    def run(self, argv: Sequence[str]) -> int:
        """Run the command and return its exit code. Raises DeployError if it cannot start, or the connection breaks."""
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        socket = open_exec(self.api, self.pod, self.container, argv, Streams(_has_input(), terminal))
        try:
            with ended_by_signals(), contextlib.ExitStack() as stack:
                changes = None
                if terminal:
                    _resize(socket, window())
                    stack.enter_context(raw())
                    changes = stack.enter_context(resizes())
                result = self._join(socket, changes)
        finally:
            socket.close()
        return self._code(argv, result)

    def _join(self, socket: Any, changes: Resizes | None) -> bytes:
        """Pass on what is typed and what is printed until the command ends; return what the API says of its end."""
        with selectors.PollSelector() as ready:
            ready.register(socket.sock.sock, selectors.EVENT_READ)
            if _has_input():
                ready.register(STDIN, selectors.EVENT_READ)
            if changes is not None:
                ready.register(changes, selectors.EVENT_READ)
            result = b""
            while socket.is_open() and not result:
                if changes is not None and (size := changes.taken()):
                    _resize(socket, size)
                typed = any(key.fd == STDIN for key, _ in ready.select(0.5))
                result += self._print(socket)  # first: who has ended hears nothing more
                if typed and socket.is_open() and not result:
                    self._type(socket, ready)
            return result + self._print(socket)

    def _type(self, socket: Any, ready: selectors.BaseSelector) -> None:
        from websocket import WebSocketException

        data = os.read(STDIN, CHUNK)
        with contextlib.suppress(WebSocketException, OSError):  # it has ended without reading all: what it said is read
            if data:
                socket.write_channel(IN, data)
                return
            socket.close_channel(IN)
        ready.unregister(STDIN)

    def _print(self, socket: Any) -> bytes:
        """Print what has come, and return what the API has said of the command's end, if it has."""
        from websocket import WebSocketException

        try:
            socket.update(timeout=0)
        except (WebSocketException, OSError):
            socket.close()  # what came before is there all the same
        for channel, stream in ((OUT, sys.stdout.buffer), (ERR, sys.stderr.buffer)):
            data = _buffered(socket, channel)
            if data:
                stream.write(data)
                stream.flush()
        return _buffered(socket, RESULT)

    def _code(self, argv: Sequence[str], result: bytes) -> int:
        """Return the exit code that the API tells."""
        try:
            return exit_code(result)
        except ValueError as error:
            message = f"the connection to pod {self.pod} broke before `{argv[0]}` ended"
            raise Cut(self.api.name, message, "it may still run there") from error
        except CannotRun as error:
            raise CannotRun(f"{self.api.name}: pod {self.pod}: {error.message}", error.exit_code) from error
        except DeployError as error:
            raise DeployError(f"{self.api.name}: pod {self.pod}: {error.message}") from error


@dataclass(frozen=True, slots=True)
class Streams:
    """What a command in a pod has: input, and a terminal or pipes."""

    has_input: bool
    terminal: bool


def open_exec(api: Api, pod: str, container: str, argv: Sequence[str], streams: Streams) -> Any:
    """Start a command in a pod; return its websocket. Raises DeployError."""
    from kubernetes.client import ApiClient, CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import stream

    # A client of its own: `stream` replaces a method of it for as long as it connects.
    client = CoreV1Api(ApiClient(api.client.configuration))
    try:
        return stream(
            client.connect_get_namespaced_pod_exec,
            pod,
            api.namespace,
            container=container,
            command=list(argv),
            stdin=streams.has_input,
            stdout=True,
            stderr=not streams.terminal,
            tty=streams.terminal,
            binary=True,
            _preload_content=False,
        )
    except ApiException as error:
        call = Call("create", POD, api.namespace, pod, "exec")
        raise refused_websocket(call, str(error.reason), api.name) from error


def exit_code(result: bytes) -> int:
    """Return the exit code that the API tells at the end (`Status` with the reason NonZeroExitCode).

    Raises ValueError if it has told nothing, CannotRun or DeployError if the command did not run.
    """
    said = json.loads(result)
    if said.get("status") == "Success":
        return 0
    for cause in (said.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdigit():
            return int(cause["message"])
    words = str(said.get("message") or "the command did not run")
    missing = any(sign in words.lower() for sign in _MISSING)
    raise CannotRun(words, 127) if missing else DeployError(words)


# What container runtimes say of a command that is not there.
_MISSING = ("not found in $path", "no such file or directory")


def _resize(socket: Any, size: os.terminal_size) -> None:
    from websocket import WebSocketException

    with contextlib.suppress(WebSocketException, OSError):  # it has ended: what it said is read
        socket.write_channel(RESIZE, json.dumps({"Width": size.columns, "Height": size.lines}).encode())


def _buffered(socket: Any, channel: int) -> bytes:
    from websocket import WebSocketException

    try:
        data: bytes = socket.read_channel(channel)
    except (WebSocketException, OSError):
        return b""
    return data


def _has_input() -> bool:
    """Say whether there is anything to read: a terminal, a pipe or a file, but not what is always at its end."""
    try:
        return not os.path.samestat(os.fstat(STDIN), os.stat(os.devnull))
    except OSError:
        return False
