"""A command of a node whose streams are those of a client's session."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import paramiko

from jobctl.jobspec.deploy.model.errors import CannotRun, DeployError
from jobctl.jobspec.deploy.transport.base import CHUNK, RunningCommand

CLIENT_CHECK_INTERVAL = 0.5  # seconds between two looks whether a client whose input has ended is still there
NOT_STARTED = 255  # the exit code of a command that could not be started


class Relayed:
    """One session: its command, begun by `start`, and its channel."""

    def __init__(self, channel: paramiko.Channel, start: Callable[[], RunningCommand]) -> None:
        self._channel, self._start = channel, start
        self._command: RunningCommand | None = None
        self._ended = threading.Event()
        self._letting_go = threading.Lock()  # the process may end only once it has

    def serve(self) -> None:
        """Pass on what is typed and printed until the command has ended, and tell how."""
        code = NOT_STARTED
        try:
            self._command = command = self._start()
            threading.Thread(target=self._type, args=(command,), daemon=True).start()
            errors = threading.Thread(
                target=self._print, args=(command.errors, self._channel.sendall_stderr), daemon=True
            )
            errors.start()
            self._print(command.output, self._channel.sendall)
            errors.join()
            code = command.wait()
        except DeployError as error:
            code = error.exit_code if isinstance(error, CannotRun) else NOT_STARTED
            with contextlib.suppress(OSError, EOFError):
                self._channel.sendall_stderr(f"jobctl: {error.message}\n".encode())
        finally:
            with self._letting_go:
                self._ended.set()
            with contextlib.suppress(OSError, EOFError):  # the client has gone
                self._channel.send_exit_status(code)
                self._channel.close()

    def _type(self, command: RunningCommand) -> None:
        """Pass on input and its end. If the client closes the session, the command hangs up."""
        with contextlib.suppress(OSError, EOFError):  # the command has ended
            while data := self._channel.recv(CHUNK):
                command.send(data)
            if not self._channel.closed:
                command.end_input()
        while not self._ended.wait(CLIENT_CHECK_INTERVAL):
            if self._channel.closed:
                self.hang_up()
                return

    def _print(self, read: Callable[[], bytes], send: Callable[[bytes], None]) -> None:
        with contextlib.suppress(OSError, EOFError):  # the client has gone, or the connection to the command
            while data := read():
                send(data)

    def resize(self, columns: int, lines: int) -> None:
        """Give the command's terminal another size."""
        if self._command is not None:
            self._command.resize(columns, lines)

    def hang_up(self) -> None:
        """Let go of the command: a client has gone."""
        with self._letting_go:
            if self._command is not None and not self._ended.is_set():
                self._ended.set()
                self._command.close()
