"""The SSH server of one connection, whose commands and ports are those of a node.

Only the job's own key gets in, and all that a client gets is what `jobctl exec` and `jobctl forward` give, too. Files come
from an SFTP server that runs in the container: the image's, or one for its Python.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    MSG_CHANNEL_REQUEST,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_CONNECT_FAILED,
    OPEN_FAILED_UNKNOWN_CHANNEL_TYPE,
    OPEN_SUCCEEDED,
)

from jobctl.jobspec.deploy.apply.deployer import NodeSession
from jobctl.jobspec.deploy.host.scripts import SCRIPTS, python
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.ssh_server.keys import Keys
from jobctl.jobspec.deploy.ssh_server.relayed import Relayed
from jobctl.jobspec.deploy.ssh_server.stdio import Stdio
from jobctl.jobspec.deploy.transport.base import TerminalSize
from jobctl.jobspec.deploy.transport.relay import relay

ACCEPT = 1.0  # seconds between two looks whether the connection is still there
NODE_CHECK_INTERVAL = 10.0  # seconds between two looks whether the node is still there
LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")  # what a client calls the node it is connected to
PASSED_ON = ("LANG", "LC_")  # variables of a client that its commands get


class NodeServer(paramiko.ServerInterface):
    """What one client may do, and what it has asked for. Paramiko calls this in the thread that reads the connection."""

    def __init__(self, user: paramiko.PKey, session: NodeSession) -> None:
        self._user, self._session = user, session
        self._lock = threading.Lock()
        self._terminals: dict[int, TerminalSize] = {}
        self._environ: dict[int, dict[str, str]] = {}
        self._dialled: dict[int, Any] = {}  # sockets to ports, by the numbers of channels that lead there
        self._running: dict[int, Relayed] = {}
        self._asked: dict[int, Relayed] = {}  # what begins once its client has been told so
        self._idle: list[paramiko.Channel] = []  # Paramiko closes a channel that nobody has

    # Who gets in.

    def get_allowed_auths(self, username: str) -> str:
        """A key, and nothing else."""
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        """Let the job's own key in, whatever the user is called: commands run as the container's user."""
        return AUTH_SUCCESSFUL if key == self._user else AUTH_FAILED

    # What channels there are.

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Give sessions."""
        return OPEN_SUCCEEDED if kind == "session" else OPEN_FAILED_UNKNOWN_CHANNEL_TYPE

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        """Lead to ports of the node itself, and nowhere else.

        Other channels wait for it: they need the same connection to the same host.
        """
        address, port = destination
        if address not in LOCAL:
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        try:
            self._dialled[chanid] = self._session.dial(port)
        except DeployError:
            return OPEN_FAILED_CONNECT_FAILED
        return OPEN_SUCCEEDED

    def opened(self, channel: paramiko.Channel) -> None:
        """Serve a channel that was opened to a port; a session begins with its request."""
        self._idle = [one for one in (*self._idle, channel) if not one.closed]
        there = self._dialled.pop(channel.get_id(), None)
        if there is not None:
            threading.Thread(target=relay, args=(channel, there), daemon=True).start()

    # What a session asks for.

    def check_channel_env_request(self, channel: paramiko.Channel, name: Any, value: Any) -> bool:
        """Take the language of the client's terminal; other variables are the container's own."""
        name, value = (part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in (name, value))
        if not name.startswith(PASSED_ON):
            return False
        self._environ.setdefault(channel.get_id(), {})[name] = value
        return True

    def check_channel_pty_request(
        self, channel: paramiko.Channel, term: Any, width: int, height: int, *pixels_and_modes: Any
    ) -> bool:
        """Give a terminal."""
        kind = term.decode("utf-8", "replace") if isinstance(term, bytes) else term
        self._terminals[channel.get_id()] = TerminalSize(kind, width or 80, height or 24)
        return True

    def check_channel_window_change_request(
        self, channel: paramiko.Channel, width: int, height: int, *pixels: int
    ) -> bool:
        """Give the terminal another size."""
        running = self._running.get(channel.get_id())
        if running is not None:
            running.resize(width, height)
        return True

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        """Start a login shell."""
        return self._begin(channel, SCRIPTS.argv("shell", "-l"))

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Start a command, which the shell reads. It may be the other end of an `scp`."""
        text = command.decode("utf-8", "surrogateescape")
        if text.startswith("scp "):
            return self._begin(channel, SCRIPTS.argv("scp", self._session.python, python("scp_server"), text))
        return self._begin(channel, SCRIPTS.argv("shell", "-c", text))

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        """Start an SFTP server in the node."""
        return name == "sftp" and self._begin(
            channel, SCRIPTS.argv("sftp", self._session.python, python("sftp_server"))
        )

    def _begin(self, channel: paramiko.Channel, argv: Sequence[str]) -> bool:
        """Take a session's command on: `begin` serves it."""
        number = channel.get_id()
        terminal, environ = self._terminals.pop(number, None), self._environ.pop(number, {})
        running = Relayed(channel, lambda: self._session.start(argv, environ, terminal))
        with self._lock:
            self._running[number] = running
        self._asked[number] = running
        return True

    def begin(self, channel: paramiko.Channel) -> None:
        """Serve what a session has asked for, if anything, in a thread of its own."""
        running = self._asked.pop(channel.get_id(), None)
        if running is not None:
            threading.Thread(target=self._serve, args=(channel.get_id(), running), daemon=True).start()

    def _serve(self, number: int, running: Relayed) -> None:
        try:
            running.serve()
        finally:
            with self._lock:
                if self._running.get(number) is running:
                    del self._running[number]

    def close(self) -> None:
        """Hang up what still runs."""
        with self._lock:
            left = list(self._running.values())
        for running in left:
            running.hang_up()


def _answer(channel: paramiko.Channel, request: paramiko.Message) -> None:
    """Answer a request of a session, and begin what it asks for: a command that ends sooner would close the channel first."""
    channel._handle_request(request)  # type: ignore[attr-defined]
    server = channel.get_transport().server_object
    if isinstance(server, NodeServer):
        server.begin(channel)


class _Transport(paramiko.Transport):
    """A connection on which commands begin after the answers to their requests."""

    _channel_handler_table: ClassVar[Any] = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_REQUEST: _answer,
    }


def serve_stdio(keys: Keys, session: NodeSession) -> None:
    """Serve the client that has started this process, until it has gone or ends it. Raises DeployError."""
    signals: list[int] = []  # no Event: a handler that interrupts its `set` would wait for its lock for ever
    for number in (signal.SIGHUP, signal.SIGTERM):  # what clients end their ProxyCommand with
        signal.signal(number, lambda received, frame: signals.append(received))
    serve(Stdio(0, 1), keys, session, threading.Event(), signals)


def serve(wire: Any, keys: Keys, session: NodeSession, over: threading.Event, signals: Sequence[int] = ()) -> None:
    """Serve one client on a socket until it has gone, the node has, it is `over`, or one of its `signals` has come.

    Raises DeployError if the client speaks no SSH, and if the node has gone: an editor connects again, to where it is then.
    """
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    transport = _Transport(wire)
    transport.add_server_key(keys.host)
    server, gone = NodeServer(keys.user, session), list[str]()
    threading.Thread(target=_look, args=(session, over, gone), daemon=True).start()
    try:
        transport.start_server(server=server)
        while transport.is_active() and not over.is_set() and not signals:
            channel = transport.accept(ACCEPT)
            if channel is not None:
                server.opened(channel)
    except (paramiko.SSHException, EOFError, OSError) as error:
        why = str(error) or "it accepts no key of this job, or speaks no SSH"
        raise DeployError(f"the SSH client has ended the connection: {why}") from error
    finally:
        over.set()
        transport.close()  # first: a host that does not answer keeps commands from hanging up
        server.close()
    if gone:
        raise DeployError(gone[0], "connect again: that leads to where the node is then")


def _look(session: NodeSession, over: threading.Event, gone: list[str]) -> None:
    """End it once the node has gone. Of a dead host its connection says nothing, and clients ask only this process."""
    while not over.wait(NODE_CHECK_INTERVAL):
        problem = session.why_gone()
        if problem is not None:
            gone.append(problem)
            over.set()
