"""One host over SSH: a connection that is kept open, opened by Fabric as the user's SSH configuration says.

Paramiko and not the program `ssh`: one connection carries commands, locks and the engine's API, without a process for each.
asyncssh could do that too, but brings an event loop, and the SDKs around it block.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport.answers import LOGIN, MAX_ANSWER_BYTES, bound
from jobctl.jobspec.deploy.transport.base import (
    CHUNK,
    TIMEOUT,
    Input,
    Result,
    RunningCommand,
    Stdin,
    TerminalSize,
    quote_for_login,
)
from jobctl.jobspec.deploy.transport.connecting import CONNECT_TIMEOUT, close, connect, wake
from jobctl.jobspec.deploy.transport.descriptors import wait_for
from jobctl.jobspec.deploy.transport.held_shell import HeldCommand, Login
from jobctl.jobspec.deploy.transport.running import ChannelCommand
from jobctl.jobspec.deploy.transport.ssh_problems import explain, login_ended, login_hangs, port_refused
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.hosts import Host

if TYPE_CHECKING:
    import fabric
    import paramiko

PING = 10  # seconds of silence after which it is asked whether the link is there at all, and within which it answers


@dataclass(frozen=True, slots=True)
class LoginSession:
    """A channel on which a command runs, and how to know where its login ends; None once it has."""

    channel: paramiko.Channel
    login: Login | None = None


class Ssh:
    """A Transport over SSH. Connects at the first use, and again after the connection was lost."""

    def __init__(self, host: Host, options: SshOptions, met: Callable[[], None] = lambda: None) -> None:
        """`met` is called each time that the host is reached, before anything is asked of it."""
        self._host, self._options, self._met = host, options, met
        self._connection: fabric.Connection | None = None
        self._lock = threading.Lock()
        self._shells: list[LoginSession] = []  # that wait for a command
        self._early: Future[fabric.Connection] | None = None

    @property
    def host(self) -> str:
        """The host's name in the hosts file."""
        return self._host.name

    def run(self, argv: Sequence[str], stdin: Stdin = b"", *, timeout: float = TIMEOUT) -> Result:
        """Run a command with `stdin` as its input; given up after `timeout` seconds of silence."""
        with self._problems(f"run {argv[0]}"):
            if stdin:
                return self._run_alone(argv, stdin, timeout)
            command, channel = HeldCommand(argv), self._shell(timeout)
            try:
                result = self._talk(channel, command, command.text.encode(errors="surrogateescape"), timeout)
            except BaseException:
                channel.close()
                raise
            self._shells.append(LoginSession(channel))
            return result

    def _run_alone(self, argv: Sequence[str], stdin: Stdin, timeout: float) -> Result:
        """Run a command in a session of its own."""
        command = HeldCommand(argv, reads=True)
        channel = self._start(["sh", "-c", command.text], timeout)
        try:
            return self._talk(channel, command, stdin, timeout, last=True)
        finally:
            channel.close()

    def _held(self) -> LoginSession | None:
        try:
            return self._shells.pop()
        except IndexError:
            return None

    def _shell(self, timeout: float) -> paramiko.Channel:
        """Return a shell that waits for a command, held from an earlier one or new."""
        self._open()  # what was held on a connection that is lost is not any more
        while (held := self._held()) is not None:
            channel = held.channel
            if channel.get_transport().is_active() and not channel.closed and not channel.eof_received:
                return self._past_login(held, timeout)
            channel.close()
        return self._start(["sh"], timeout)

    def _start(self, argv: Sequence[str], timeout: float = TIMEOUT) -> paramiko.Channel:
        """Start a command in a session of its own; what its channel gives is the command's from the first byte on."""
        return self._past_login(_begin(self._open(), argv, min(timeout, CONNECT_TIMEOUT)), timeout)

    def preconnect(self) -> None:
        """Connect and start a shell in the background; what comes of it shows at the first use, which waits for it."""
        if self._connection is not None:
            return
        self._early = Future()
        threading.Thread(target=self._preconnect, args=(self._early,), daemon=True).start()

    def _preconnect(self, early: Future[fabric.Connection]) -> None:
        connection = None
        try:
            import paramiko

            connection = self._connect()
            with contextlib.suppress(paramiko.ChannelException):  # refused: who runs a command is told so
                self._shells.append(_begin(connection, ["sh"]))
        except Exception as error:  # of paramiko or a socket; told by whoever uses the connection
            early.set_exception(error)
            if connection is not None:
                close(connection)
        else:
            early.set_result(connection)

    def dial(self, argv: Sequence[str]) -> Any:
        """Start a command and return its channel, which is like a socket."""
        with self._problems(f"run {argv[0]}"):
            return self._start(argv)

    def open_socket(self, path: str) -> Any:
        """Return a channel to a Unix socket there, None where sshd does not lead to it: forbidden, or nobody listens."""
        import paramiko

        with self._problems(f"reach {path}"):
            try:
                return self._open().transport.open_socket(path, CONNECT_TIMEOUT)
            except paramiko.ChannelException:
                return None

    def open_port(self, address: str, port: int) -> Any:
        """Return a channel to a TCP port as the host reaches it. Raises PortClosed if nothing listens there."""
        import paramiko

        with self._problems(f"reach port {port}"):
            transport = self._open().transport
            try:
                return transport.open_channel(
                    "direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT
                )
            except paramiko.ChannelException as error:
                raise port_refused(self.host, f"{address}:{port}", error.code) from error

    def interact(self, argv: Sequence[str]) -> int:
        """Run a command that has this process's terminal (or pipes) until it ends; return its exit code."""
        from jobctl.jobspec.deploy.transport.terminal import StreamFailed, interact

        with self._problems(f"run {argv[0]}"):
            channel = self._open().transport.open_session(timeout=CONNECT_TIMEOUT)

            def begin(*, terminal: bool) -> None:
                if terminal:  # a person sees what the login prints, and may have to answer it
                    _run_on(channel, argv)
                else:
                    self._past_login(_log_in(channel, argv), TIMEOUT)

            try:
                return interact(channel, begin, lambda: self._ping(channel))
            except StreamFailed as failed:
                channel.close()
                problem = failed.problem
        raise problem  # no problem of the host's

    def start(self, argv: Sequence[str], terminal: TerminalSize | None = None) -> RunningCommand:
        """Start a command, with a terminal or with pipes, and return it."""
        with self._problems(f"run {argv[0]}"):
            if terminal is None:
                return ChannelCommand(self._start(argv))
            channel = self._open().transport.open_session(timeout=CONNECT_TIMEOUT)
            channel.get_pty(terminal.kind, terminal.columns, terminal.lines)
            _run_on(channel, argv)
            return ChannelCommand(channel)

    def close(self) -> None:
        """Close the connection. Nobody waits for one that is being made just now, perhaps to a host that is silent."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            self._close()
        else:
            threading.Thread(target=self._close, daemon=True, name="close").start()

    def _close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            early, self._early = self._early, None
        if connection is not None:
            close(connection)
        elif early is not None:  # nobody has used it
            early.add_done_callback(lambda made: None if made.exception() else close(made.result()))

    # Connecting.

    def _open(self) -> fabric.Connection:
        with self._lock:
            if self._connection is None or not self._connection.is_connected:
                early, self._early = self._early, None
                if early is not None:
                    self._connection = early.result()
                else:
                    self._shells.clear()
                    self._connection = self._connect()
            return self._connection

    def _connect(self) -> fabric.Connection:
        connection = connect(self._host, self._options)
        self._met()
        return connection

    # Talking.

    def _past_login(self, session: LoginSession, timeout: float) -> paramiko.Channel:
        """Wait until what a session runs has begun, and leave on its channel what comes from then on."""
        channel, login = session.channel, session.login
        if login is None:
            return channel
        out, err = bytearray(), bytearray()
        begun = asked = time.monotonic()
        channel.settimeout(0.0)
        try:
            while login.missing(out) or login.missing(err):
                over = channel.closed
                moved = _hear(login, out, channel.recv_ready, channel.recv)
                moved |= _hear(login, err, channel.recv_stderr_ready, channel.recv_stderr)
                bound(self.host, "its login", max(len(out), len(err)), LOGIN)
                if moved:
                    asked = time.monotonic()
                elif over:  # before the last look
                    if channel.exit_status < 0:
                        raise EOFError
                    raise login_ended(self.host, channel.exit_status, bytes(out + err))
                elif time.monotonic() - asked > PING:
                    self._ping(channel)
                    asked = time.monotonic()
                else:
                    wait_for(channel, 0.5)
                if time.monotonic() - begun > timeout:
                    raise login_hangs(self.host, timeout, bytes(out + err))
        except BaseException:
            channel.close()
            raise
        channel.settimeout(None)
        return channel

    def _talk(
        self, channel: paramiko.Channel, command: HeldCommand, data: Stdin, timeout: float, *, last: bool = False
    ) -> Result:
        """Send `data`, with which its input ends if it is the `last`, and read until the command has ended."""
        out, err = bytearray(), bytearray()
        channel.settimeout(0.0)
        left = Input(data)
        heard = asked = time.monotonic()
        while True:
            over = channel.closed or channel.eof_received
            moved = _drain(channel, out, err)
            bound(self.host, f"`{command.name}`", len(out) + len(err))
            sent = _send(channel, left, last=last)
            result = command.result(out, err) if moved else None
            if result is not None:
                return result
            if moved or sent:
                heard = asked = time.monotonic()
            elif over:  # before the last look
                raise EOFError
            elif time.monotonic() - heard > timeout:
                message = f"`{command.name}` has said nothing for {timeout:g} s"
                raise HostError(self.host, "silent", message, "look whether it hangs there, on a disk for example")
            elif time.monotonic() - asked > PING:
                self._ping(channel)
                asked = time.monotonic()
            else:
                # A channel wakes who polls when there is something to read; for room to write it must be asked again.
                wait_for(channel, 0.02 if left else 0.5)

    def _ping(self, channel: paramiko.Channel) -> None:
        """Raise EOFError if the link is dead: a command may be silent for long, a host answers at once.

        paramiko's keepalive asks, but does not mind that there is no answer. A new session is always answered, if
        only with a refusal.
        """
        import paramiko

        try:
            channel.get_transport().open_session(timeout=PING).close()
        except paramiko.ChannelException:
            return
        except (paramiko.SSHException, OSError) as error:
            raise EOFError from error

    # What goes wrong.

    @contextmanager
    def _problems(self, what: str) -> Iterator[None]:
        try:
            yield
        except DeployError:
            raise
        except Exception as error:
            found = explain(self._host, error, what)
            if found is None:
                raise
            if found.code not in ("key-refused", "host-key-unknown", "host-key-changed"):
                self._forget(found.cause)
            raise found from error

    def _forget(self, why: str) -> None:
        """Let the next use connect again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.transport.why_closed = connection.transport.why_closed or why
            wake(connection)
            threading.Thread(target=close, args=(connection,), daemon=True).start()  # which waits for a dead peer


def _begin(connection: fabric.Connection, argv: Sequence[str], timeout: float = CONNECT_TIMEOUT) -> LoginSession:
    """Start a command in a session of its own, which first of all logs in."""
    return _log_in(connection.transport.open_session(timeout=timeout), argv)


def _log_in(channel: paramiko.Channel, argv: Sequence[str]) -> LoginSession:
    login = Login()
    _run_on(channel, login.argv(argv))
    return LoginSession(channel, login)


def _run_on(channel: paramiko.Channel, argv: Sequence[str], timeout: float = CONNECT_TIMEOUT) -> None:
    """Have a session run a command. Raises TimeoutError where sshd does not say that it does: Paramiko waits for ever."""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        with contextlib.suppress(OSError, EOFError):  # its connection may be over
            channel.close()

    timer = threading.Timer(timeout, give_up)
    timer.daemon = True
    timer.start()
    try:
        channel.exec_command(quote_for_login(argv).encode(errors="surrogateescape"))
    except Exception as error:
        if late.is_set():
            raise TimeoutError(f"no answer within {timeout:g} s") from error
        raise
    finally:
        timer.cancel()


def _hear(login: Login, said: bytearray, ready: Callable[[], bool], receive: Callable[[int], bytes]) -> bool:
    """Read what a login says on one stream, and nothing that comes after it."""
    moved = False
    while (missing := login.missing(said)) and ready() and len(said) <= LOGIN:
        said += receive(missing)
        moved = True
    return moved


def _drain(channel: paramiko.Channel, out: bytearray, err: bytearray) -> bool:
    """Read what is there, up to one byte or more above what an answer may have."""
    moved = False
    while channel.recv_ready() and len(out) <= MAX_ANSWER_BYTES:
        out += channel.recv(CHUNK)
        moved = True
    while channel.recv_stderr_ready() and len(err) <= MAX_ANSWER_BYTES:
        err += channel.recv_stderr(CHUNK)
        moved = True
    return moved


def _send(channel: paramiko.Channel, left: Input, *, last: bool) -> bool:
    """Send what can be sent now; the end of input follows the last byte if it is the `last`. Say whether any was."""
    sent = False
    try:
        while left and channel.send_ready():
            left.skip(channel.send(left.next(CHUNK)))
            sent = True
        if last and not left and not channel.eof_sent:
            channel.shutdown_write()
    except OSError:  # the command has ended, and left its input alone
        left.drop()
    return sent
