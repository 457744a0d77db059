"""One host over SSH: a connection that is kept open, opened by Fabric as the user's SSH configuration says.

Host keys are never accepted silently: an unknown one is refused unless the configuration (StrictHostKeyChecking
`accept-new` or `no`) or `--accept-new-host-keys` says otherwise; a changed one always is.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.reach import SshOptions
from jobctl.jobspec.deploy.shell import Command
from jobctl.jobspec.deploy.transport import TIMEOUT, HostError, Result, quote
from jobctl.jobspec.deploy.wire import wire
from jobctl.jobspec.spec.hosts import Host

if TYPE_CHECKING:
    import fabric
    import paramiko

CONNECT_TIMEOUT = 10  # seconds, unless the SSH configuration has ConnectTimeout
CHUNK = 32768
# Seconds between two looks of Paramiko's whether a connection is to be closed; with its own 0.1, many keep a core busy.
QUIET = 2.0
PING = 10  # seconds of silence after which it is asked whether the link is there at all, and within which it answers


class Ssh:
    """A Transport over SSH. Connects at the first use, and again after the connection was lost."""

    def __init__(self, host: Host, options: SshOptions) -> None:
        self._host, self._options = host, options
        self._connection: fabric.Connection | None = None
        self._lock = threading.Lock()
        self._shells: list[paramiko.Channel] = []  # that wait for a command
        self._early: Future[fabric.Connection] | None = None

    @property
    def host(self) -> str:
        """The host's name in the hosts file."""
        return self._host.name

    def run(self, argv: Sequence[str], stdin: bytes = b"", *, timeout: float = TIMEOUT) -> Result:
        """Run a command with `stdin` as its input; given up after `timeout` seconds of silence."""
        with self._problems(f"run {argv[0]}"):
            if stdin:
                return self._run_alone(argv, stdin, timeout)
            command, channel = Command(argv), self._shell(min(timeout, CONNECT_TIMEOUT))
            try:
                result = self._talk(channel, command.text, argv, timeout, command.result)
            except BaseException:
                channel.close()
                raise
            self._shells.append(channel)
            return result

    def _run_alone(self, argv: Sequence[str], stdin: bytes, timeout: float) -> Result:
        """Run a command in a session of its own."""
        channel = _start(self._open(), argv, min(timeout, CONNECT_TIMEOUT))
        try:
            return self._talk(channel, stdin, argv, timeout, None)
        finally:
            channel.close()

    def _held(self) -> paramiko.Channel | None:
        try:
            return self._shells.pop()
        except IndexError:
            return None

    def _shell(self, timeout: float) -> paramiko.Channel:
        """Return a shell that waits for a command, held from an earlier one or new."""
        self._open()  # what was held on a connection that is lost is not any more
        while (channel := self._held()) is not None:
            if channel.get_transport().is_active() and not channel.closed and not channel.eof_received:
                return channel
            channel.close()
        return _start(self._open(), ["sh"], timeout)

    def reach_out(self) -> None:
        """Connect and start a shell in the background; what comes of it shows at the first use, which waits for it."""
        self._early = Future()
        threading.Thread(target=self._reach_out, args=(self._early,), daemon=True).start()

    def _reach_out(self, early: Future[fabric.Connection]) -> None:
        connection = None
        try:
            import paramiko

            connection = self._connect()
            with contextlib.suppress(paramiko.ChannelException):  # refused: who runs a command is told so
                self._shells.append(_start(connection, ["sh"]))
        except Exception as error:  # of paramiko or a socket; told by whoever uses the connection
            early.set_exception(error)
            if connection is not None:
                _close(connection)
        else:
            early.set_result(connection)

    def dial(self, argv: Sequence[str]) -> Any:
        """Start a command and return its channel, which is like a socket."""
        with self._problems(f"run {argv[0]}"):
            return _start(self._open(), argv)

    def open_socket(self, path: str) -> Any:
        """Return a channel to a Unix socket there, None where sshd does not lead to it: forbidden, or nobody listens."""
        import paramiko

        with self._problems(f"reach {path}"):
            try:
                return self._open().transport.open_socket(path, CONNECT_TIMEOUT)
            except paramiko.ChannelException:
                return None

    def interact(self, argv: Sequence[str]) -> int:
        """Run a command that has this process's terminal (or pipes) until it ends; return its exit code."""
        from jobctl.jobspec.deploy.terminal import interact

        with self._problems(f"run {argv[0]}"):
            return interact(self._open().transport.open_session(timeout=CONNECT_TIMEOUT), quote(argv))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            connection, self._connection = self._connection, None
            early, self._early = self._early, None
        if connection is not None:
            _close(connection)
        elif early is not None:  # nobody has used it
            early.add_done_callback(lambda made: None if made.exception() else _close(made.result()))

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
        connection.open()
        connection.transport.sock.settimeout(QUIET)
        return connection

    # Talking.

    def _talk(
        self,
        channel: paramiko.Channel,
        data: bytes,
        argv: Sequence[str],
        timeout: float,
        ended: Callable[[bytearray, bytearray], Result | None] | None,
    ) -> Result:
        """Send `data` and read until the command has ended, as `ended` says; None: with its session, as does its input."""
        out, err = bytearray(), bytearray()
        channel.settimeout(0.0)
        left = memoryview(data)
        heard = asked = time.monotonic()
        while True:
            over = channel.closed or (ended is not None and channel.eof_received)
            moved = _drain(channel, out, err)
            left, sent = _send(channel, left, last=ended is None)
            result = ended(out, err) if ended else _ended(channel, out, err)
            if result is not None:
                return result
            if moved or sent:
                heard = asked = time.monotonic()
            elif over:  # before the last look
                raise EOFError
            elif time.monotonic() - heard > timeout:
                message = f"`{argv[0]}` has said nothing for {timeout:g} s"
                raise HostError(self.host, "silent", message, "look whether it hangs there, on a disk for example")
            elif time.monotonic() - asked > PING:
                self._ping(channel)
                asked = time.monotonic()
            else:
                # A channel wakes select when there is something to read; for room to write it must be asked again.
                select.select([channel], [], [], 0.02 if left else 0.5)

    def _ping(self, channel: paramiko.Channel) -> None:
        """Raise EOFError if the link is dead: a command may be silent for long, a host answers at once.

        paramiko's keepalive asks, but does not mind that there is no answer. A new session is always answered, be it
        with a refusal.
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
        except HostError:
            raise
        except Exception as error:
            found = explain(self._host, error, what)
            if found is None:
                raise
            if found.code not in ("key-refused", "host-key-unknown", "host-key-changed"):
                self._forget()
            raise found from error

    def _forget(self) -> None:
        """Let the next use connect anew."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            _wake(connection)
            threading.Thread(target=connection.close, daemon=True).start()  # which waits for a dead peer


def _start(connection: fabric.Connection, argv: Sequence[str], timeout: float = CONNECT_TIMEOUT) -> paramiko.Channel:
    """Start a command in a session of its own."""
    channel: paramiko.Channel = connection.transport.open_session(timeout=timeout)
    channel.exec_command(quote(argv))
    return channel


def _close(connection: fabric.Connection) -> None:
    _wake(connection)
    connection.close()
    if not isinstance(connection.gateway, str | None):
        connection.gateway.close()


def _wake(connection: fabric.Connection) -> None:
    """Have Paramiko's thread of a connection notice at once that it is to be closed, and not with its next look."""
    with contextlib.suppress(OSError, EOFError, AttributeError):
        connection.transport.sock.shutdown(socket.SHUT_RDWR)


def _drain(channel: paramiko.Channel, out: bytearray, err: bytearray) -> bool:
    moved = False
    while channel.recv_ready():
        out += channel.recv(CHUNK)
        moved = True
    while channel.recv_stderr_ready():
        err += channel.recv_stderr(CHUNK)
        moved = True
    return moved


def _send(channel: paramiko.Channel, left: memoryview, *, last: bool) -> tuple[memoryview, bool]:
    """Send what can be sent now; the end of input follows the last byte if it is the `last`."""
    sent = False
    try:
        while left and channel.send_ready():
            count = channel.send(bytes(left[:CHUNK]))
            left, sent = left[count:], True
        if last and not left and not channel.eof_sent:
            channel.shutdown_write()
    except OSError:  # the command has ended, and left its input alone
        return left[:0], sent
    return left, sent


def _ended(channel: paramiko.Channel, out: bytearray, err: bytearray) -> Result | None:
    """Return what the command of a session did, None while it goes on."""
    if not (channel.eof_received and channel.exit_status_ready()):
        return None
    _drain(channel, out, err)  # what came between the last look and the end
    code = channel.recv_exit_status()
    # Ended without a status, by a signal: sshd does not say which to paramiko.
    return Result(code if code >= 0 else 255, bytes(out), bytes(err))


# Opening a connection as OpenSSH would.


def connect(host: Host, options: SshOptions) -> fabric.Connection:
    """Return a connection to `host` that is not open yet, with the user's SSH configuration applied."""
    import logging

    import fabric

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it logs tracebacks of what we say in a sentence
    runtime = {"runtime_ssh_path": str(options.config)} if options.config else {}
    config = fabric.Config(**runtime)
    identity = {"key_filename": [os.path.expanduser(host.identity)]} if host.identity else {}
    connection = fabric.Connection(host.name, user=host.user, port=host.port, config=config, connect_kwargs=identity)
    hop: Any = connection
    while hop is not None and not isinstance(hop, str):
        _prepare(hop, options)
        hop = hop.gateway
    return connection


def _prepare(connection: fabric.Connection, options: SshOptions) -> None:
    """Set what Fabric leaves out of the SSH configuration: host keys, IdentitiesOnly, timeouts."""
    said = connection.ssh_config
    connection.connect_timeout = connection.connect_timeout or CONNECT_TIMEOUT
    kwargs = connection.connect_kwargs
    # A host that accepts connections and says nothing, or never ends the authentication, must not hold us up.
    kwargs.update(banner_timeout=connection.connect_timeout, auth_timeout=connection.connect_timeout)
    kwargs.update(transport_factory=wire)
    if said.get("identitiesonly", "no") == "yes" and kwargs.get("key_filename"):
        kwargs.update(allow_agent=False, look_for_keys=False)
    files = [Path(name).expanduser() for name in said.get("userknownhostsfile", _KNOWN_HOSTS).split()]
    for path in (*files, Path("/etc/ssh/ssh_known_hosts")):
        if path.is_file():
            connection.client.load_system_host_keys(str(path))
    lax = said.get("stricthostkeychecking", "ask").lower() in ("accept-new", "no", "off")
    connection.client.set_missing_host_key_policy(_policy(files[0], accept=lax or options.accept_new))


_KNOWN_HOSTS = "~/.ssh/known_hosts"


def _policy(known_hosts: Path, *, accept: bool) -> paramiko.MissingHostKeyPolicy:
    import paramiko

    class AcceptNew(paramiko.MissingHostKeyPolicy):
        """Writes an unknown key down, as OpenSSH does with `accept-new`."""

        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with known_hosts.open("a", encoding="utf-8") as file:
                file.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")

    return AcceptNew() if accept else paramiko.RejectPolicy()


# Errors, each with what a user does about it.


def explain(host: Host, error: Exception, what: str) -> HostError | None:
    """Return what an exception of paramiko or of a socket means, None for what is a bug."""
    import paramiko

    where = f"{host.user}@{host.name}" if host.user else host.name
    try_it = f"try `ssh {where}`"

    def found(code: str, message: str, hint: str) -> HostError:
        return HostError(host.name, code, message, hint)

    kinds: tuple[tuple[type[Exception], Callable[[], HostError]], ...] = (
        (
            paramiko.BadHostKeyException,
            lambda: found(
                "host-key-changed",
                "its host key has changed: the host was installed anew, or somebody is in between",
                f"if it was installed anew: `ssh-keygen -R {host.name}`, then connect once with ssh",
            ),
        ),
        (
            paramiko.PasswordRequiredException,
            lambda: found("key-locked", "the private key has a passphrase", "`ssh-add` it to an agent"),
        ),
        (
            paramiko.AuthenticationException,
            lambda: found(
                "key-refused",
                "it refuses the keys that were offered",
                f"{try_it}; name the key with `identity=` in the hosts file or IdentityFile, or add it to the agent",
            ),
        ),
        (
            paramiko.ssh_exception.NoValidConnectionsError,
            lambda: found("connection-refused", "nothing listens at its SSH port", f"is sshd running there? {try_it}"),
        ),
        (
            paramiko.ChannelException,
            lambda: found("too-many-sessions", f"sshd gives no session: {error}", "see MaxSessions in sshd_config"),
        ),
        (
            socket.gaierror,
            lambda: found(
                "unknown-name", "its name cannot be resolved", "is it right? HostName in the SSH configuration"
            ),
        ),
        (
            TimeoutError,
            lambda: found("unreachable", "it does not answer", f"is it up, and the network between? {try_it}"),
        ),
        (EOFError, lambda: found("lost", f"the connection was lost while it was to {what}", try_it)),
    )
    for kind, build in kinds:
        if isinstance(error, kind):
            return build()
    if isinstance(error, paramiko.SSHException):
        return _ssh_exception(host, error, found, try_it)
    if isinstance(error, OSError):
        return found("unreachable", f"{error.strerror or error}", f"is it up, and the network between? {try_it}")
    return None


def _ssh_exception(host: Host, error: Exception, found: Callable[..., HostError], try_it: str) -> HostError:
    text = str(error)
    if "not found in known_hosts" in text:
        hint = f"compare it: `ssh {host.name}`, or `--accept-new-host-keys` to trust all new ones"
        result: HostError = found("host-key-unknown", "its host key is not known here", hint)
    elif (
        "negotiating session" in text
        or "existing session" in text
        or "banner" in text
        or "timed out" in text.lower()
        or "timeout" in text.lower()
    ):
        result = found("unreachable", "it accepts connections, and then says nothing", f"is it overloaded? {try_it}")
    elif "No authentication methods available" in text or "not a valid" in text:
        hint = "name one with `identity=` in the hosts file or IdentityFile, or start an agent"
        result = found("key-refused", "there is no key to offer", hint)
    else:
        result = found("lost", text or type(error).__name__, try_it)
    return result
