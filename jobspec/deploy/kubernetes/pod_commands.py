"""Commands in a pod for SSH clients: each has a websocket of the API, which one thread reads and writes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import Any

from jobctl.jobspec.deploy.host.scripts import python
from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.kinds import POD
from jobctl.jobspec.deploy.kubernetes.pods import Pod, parse_pod
from jobctl.jobspec.deploy.kubernetes.ports import PodPorts
from jobctl.jobspec.deploy.kubernetes.session import ERR, IN, OUT, RESIZE, RESULT, Streams, exit_code, open_exec
from jobctl.jobspec.deploy.model.errors import CannotRun, DeployError
from jobctl.jobspec.deploy.targets.inside import SESSION_MARK
from jobctl.jobspec.deploy.transport.base import CHUNK, RunningCommand, TerminalSize

PIECE = 8192  # bytes that are sent at once: a connection that takes any takes so many
MAX_BUFFER_BYTES = 1 << 20  # bytes that wait in each direction, after which who makes them waits
POLL_INTERVAL = 0.5  # seconds between two looks at a connection


class PodCommands:
    """The inside of a pod that is a node."""

    def __init__(self, api: Api, pod: Pod, interpreter: str) -> None:
        self._api, self._pod, self.python = api, pod, interpreter
        self._ports = PodPorts(api, lambda node: pod)

    def start(self, argv: Sequence[str], environ: Mapping[str, str], terminal: TerminalSize | None) -> RunningCommand:
        """Start a command in the pod's container."""
        mark = f"{SESSION_MARK}={token_hex(8)}"
        kind = {"TERM": terminal.kind} if terminal else {}
        variables = [f"{name}={value}" for name, value in {**environ, **kind}.items()]
        command = PodCommand(self._open(["env", *variables, mark, *argv], terminal), lambda: self._hang_up(mark))
        if terminal:
            command.resize(terminal.columns, terminal.lines)
        return command

    def _open(self, argv: Sequence[str], terminal: TerminalSize | None) -> Any:
        streams = Streams(has_input=True, terminal=terminal is not None)
        return open_exec(self._api, self._pod.name, self._pod.container, argv, streams)

    def _hang_up(self, mark: str) -> None:
        """End what a session has started: it goes on in the pod when its connection has gone."""
        with contextlib.suppress(DeployError):  # the connection may be lost as well
            killer = PodCommand(self._open([self.python, "-c", python("hang_up"), mark], None), lambda: None)
            killer.wait()

    def dial(self, port: int) -> Any:
        """Connect to a port of the pod."""
        return self._ports.dial("", port)

    def why_gone(self) -> str | None:
        """Ask the API server whether this pod still runs. One that does not answer may answer again."""
        with contextlib.suppress(DeployError):
            found = self._api.find(POD, self._pod.name)
            if found is None or found["metadata"].get("uid") != self._pod.uid or parse_pod(found).state != "running":
                return f"pod {self._pod.name} runs no more"
        return None


class PodCommand:
    """A command in a pod, for several threads. To close it before it has ended has it hang up."""

    def __init__(self, websocket: Any, hang_up: Callable[[], None]) -> None:
        self._websocket, self._hang_up = websocket, hang_up
        self._changed = threading.Condition()
        self._printed: dict[int, bytearray] = {OUT: bytearray(), ERR: bytearray()}
        self._typed: deque[tuple[int, bytes | None]] = deque()  # None: the input has ended
        self._result = b""
        self._over = self._closed = False
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        threading.Thread(target=self._run, daemon=True).start()

    # For those who have started it.

    def send(self, data: bytes) -> None:
        """Write to its input. Raises OSError once it has ended."""
        for start in range(0, len(data), PIECE):
            with self._changed:
                self._changed.wait_for(lambda: self._over or len(self._typed) < MAX_BUFFER_BYTES // PIECE)
                if self._over:
                    raise BrokenPipeError("the command has ended")
                self._put(IN, data[start : start + PIECE])

    def end_input(self) -> None:
        """End its input, which clusters before 1.30 cannot."""
        with self._changed:
            self._put(IN, None)

    def resize(self, columns: int, lines: int) -> None:
        """Give its terminal another size."""
        with self._changed:
            self._put(RESIZE, json.dumps({"Width": columns, "Height": lines}).encode())

    def output(self) -> bytes:
        """Return the next of what it prints on stdout."""
        return self._next(OUT)

    def errors(self) -> bytes:
        """Return the next of what it prints on stderr."""
        return self._next(ERR)

    def wait(self) -> int:
        """Return its exit code when it has ended; 255 if the connection was lost. Raises CannotRun if it is not there."""
        with self._changed:
            self._changed.wait_for(lambda: self._over)
        try:
            return exit_code(self._result)
        except CannotRun:
            raise
        except (DeployError, ValueError):
            return 255

    def close(self) -> None:
        """Let go of it, and have it hang up unless it has ended."""
        with self._changed:
            self._closed, ended = True, self._result != b""
            self._awake()
        if not ended:
            self._hang_up()

    def _put(self, channel: int, data: bytes | None) -> None:
        self._typed.append((channel, data))
        self._awake()

    def _awake(self) -> None:
        if not self._over:
            with contextlib.suppress(BlockingIOError):  # it wakes up anyway
                os.write(self._wake, b".")

    def _next(self, channel: int) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._printed[channel] or self._over)
            data = bytes(self._printed[channel][:CHUNK])
            del self._printed[channel][:CHUNK]
            self._awake()
            return data

    # The thread that has the websocket.

    def _run(self) -> None:
        from websocket import WebSocketException

        try:
            with contextlib.suppress(WebSocketException, OSError, ValueError):
                while not (self._closed or self._result) and self._websocket.is_open():
                    self._step()
        finally:
            with self._changed:
                self._take()
                self._over = True
                self._changed.notify_all()
                os.close(self._woken)
                os.close(self._wake)
            self._websocket.close()

    def _step(self) -> None:
        """Wait until something can be read or sent, and do that."""
        line = self._websocket.sock.sock
        with self._changed:
            reads = all(len(printed) < MAX_BUFFER_BYTES for printed in self._printed.values())
            sends = bool(self._typed)
        more = reads and hasattr(line, "pending") and line.pending()
        watch = select.poll()
        watch.register(self._woken, select.POLLIN)
        if reads or sends:
            watch.register(line, (select.POLLIN if reads else 0) | (select.POLLOUT if sends else 0))
        ready = dict(watch.poll(0 if more else POLL_INTERVAL * 1000))
        if self._woken in ready:
            os.read(self._woken, CHUNK)
        now = ready.get(line.fileno(), 0)
        if now & select.POLLOUT:
            self._send_next()
        if more or now & ~select.POLLOUT:
            self._websocket.update(timeout=0)
            with self._changed:
                self._take()
                self._changed.notify_all()

    def _send_next(self) -> None:
        with self._changed:
            channel, data = self._typed.popleft()
            self._changed.notify_all()
        if data is None:
            self._websocket.close_channel(channel)
        else:
            self._websocket.write_channel(channel, data)

    def _take(self) -> None:
        """Take what has come."""
        from websocket import WebSocketException

        for channel in (OUT, ERR, RESULT):
            with contextlib.suppress(WebSocketException, OSError):
                data: bytes = self._websocket.read_channel(channel) or b""
                if channel == RESULT:
                    self._result += data
                else:
                    self._printed[channel] += data
