"""Opening a connection as OpenSSH would, with the user's SSH configuration.

Host keys are never accepted silently: an unknown one is refused unless the configuration (StrictHostKeyChecking
`accept-new` or `no`) or `--accept-new-host-keys` says otherwise; a changed one always is.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport.agent import agent
from jobctl.jobspec.deploy.transport.dialing import dial
from jobctl.jobspec.deploy.transport.known_hosts import KnownHosts, add
from jobctl.jobspec.deploy.transport.login_turns import turn
from jobctl.jobspec.deploy.transport.proxy_command import ProxyCommand
from jobctl.jobspec.deploy.transport.ssh_config import (
    Destination,
    filled_in,
    jump_hosts,
    known_hosts_files,
    proxy_command,
    read_config,
    seconds_of,
)
from jobctl.jobspec.deploy.transport.ssh_problems import (
    NO_MORE_FILES,
    bad_config,
    host_key_revoked,
    host_key_unreadable,
    host_key_unwritten,
    not_through,
)
from jobctl.jobspec.deploy.transport.streamlocal import wire
from jobctl.jobspec.spec.hosts import Host

if TYPE_CHECKING:
    import fabric
    import paramiko

# Seconds between two looks of Paramiko's whether a connection is to be closed; with its own 0.1, many keep a core busy.
# What closes one here wakes it first.
CLOSE_CHECK_INTERVAL = 5.0
CONNECT_TIMEOUT = 10  # seconds, unless the SSH configuration has ConnectTimeout


def connect(host: Host, options: SshOptions) -> fabric.Connection:
    """Return a connection to `host`, with the user's SSH configuration applied. Raises HostError, and what Paramiko raises."""
    import paramiko

    connection = _prepared(host, options)
    try:
        with _turn(connection):
            connection.open()
    except Exception as error:
        close(connection)  # the jump host may have answered
        if isinstance(error, paramiko.ChannelException):  # there is no session yet, so it is of the jump host
            raise not_through(host.name, str(connection.gateway.original_host), error.text) from error
        raise
    for hop in _hops(connection):
        hop.transport.sock.settimeout(CLOSE_CHECK_INTERVAL)
    return connection


def _turn(connection: fabric.Connection) -> AbstractContextManager[object]:
    """Wait for a turn at the jump host to which a `ProxyCommand` of OpenSSH leads, if one does: see login_turns.py."""
    command = proxy_command(connection.ssh_config) if isinstance(connection.gateway, str) else None
    if command is None or not _OPENSSH.match(command):
        return contextlib.nullcontext()
    return turn(command, 0, connection.connect_timeout)  # with its tokens, so that it is the same for all hosts


_OPENSSH = re.compile(r"(exec\s+)?(\S*/)?ssh\s")


def close(connection: fabric.Connection) -> None:
    """Close a connection, also one that was not made, and those to its jump hosts."""
    for hop in _hops(connection):
        wake(hop)
        hop.close()
        hop.client.close()  # Fabric closes none that is not open yet


def _hops(connection: fabric.Connection) -> Iterator[fabric.Connection]:
    """Yield a connection, and those to the jump hosts on its way."""
    hop: Any = connection
    while hop is not None and not isinstance(hop, str):
        yield hop
        hop = hop.gateway


def wake(connection: fabric.Connection) -> None:
    """Have Paramiko's thread of a connection notice at once that somebody closes it, and not with its next look."""
    with contextlib.suppress(OSError, EOFError, AttributeError):
        connection.transport.sock.shutdown(socket.SHUT_RDWR)


def _prepared(host: Host, options: SshOptions) -> fabric.Connection:
    """Return a connection to `host` that is not open yet, with the user's SSH configuration applied."""
    import logging

    from paramiko.ssh_exception import ConfigParseError

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it logs tracebacks of what we say in a sentence
    identity = {"key_filename": [_identity(host)] if host.identity else []}
    try:
        to = Destination(host.name, host.user, host.port)
        connection = _connection(to, options.config, connect_kwargs=identity)
    except (ConfigParseError, OSError, ValueError) as error:
        if getattr(error, "errno", None) in NO_MORE_FILES:
            raise
        raise bad_config(host.name, error) from error
    for hop in _hops(connection):
        _prepare(hop, options)
    return connection


def login_user(host: Host, options: SshOptions) -> str | None:
    """Return the user who logs in to a host, None if the SSH configuration does not let us tell."""
    from paramiko.ssh_exception import ConfigParseError

    try:
        return str(_connection(Destination(host.name, host.user, host.port), options.config).user)
    except (ConfigParseError, OSError, ValueError):
        return None


def _connection(
    to: Destination, config: Path | None, on_the_way: Sequence[str] = (), gateway: Any = None, **also: Any
) -> fabric.Connection:
    """Return a connection that is not open yet, through `gateway`, otherwise through what the configuration says.

    Fabric would pass several jump hosts in the wrong order, and take `none` for the name of one. `on_the_way` are hosts that
    are reached through this one: it is not reached through one of them, whatever a pattern such as `*` says.
    """
    import fabric

    how = {
        "config": fabric.Config(ssh_config=read_config(config, to)),
        "gateway": False,
        "forward_agent": False,
        **also,
    }
    made = fabric.Connection(to.name, user=to.user, port=to.port, connect_timeout=CONNECT_TIMEOUT, **how)
    said, before = made.ssh_config, (*on_the_way, to.name)
    jumps = jump_hosts(said)
    if gateway is None and not any(jump.name in before for jump in jumps):
        for jump in jumps:
            gateway = _connection(jump, config, before, gateway)
    command = proxy_command(said) if gateway is None else None
    made.gateway = gateway if command is None else filled_in(command, made)
    made.connect_timeout = seconds_of(said) or CONNECT_TIMEOUT
    return made


def _identity(host: Host) -> str:
    """Return the private key that the hosts file names. Raises HostError if it is not here."""
    given = host.identity or ""
    path = os.path.expanduser(given)
    if not os.path.isfile(path):
        hint = "it names a private key on this machine; a path in a hosts file is absolute, or begins with `~/`"
        raise HostError(host.name, "no-identity", f"`identity={given}`: there is no such file", hint)
    return path


def _prepare(connection: fabric.Connection, options: SshOptions) -> None:
    """Set what Fabric leaves out of the SSH configuration: host keys, IdentitiesOnly, timeouts."""
    said = connection.ssh_config
    kwargs = connection.connect_kwargs
    # A host that accepts connections and says nothing, or never ends the authentication, must not hold us up.
    kwargs.update(banner_timeout=connection.connect_timeout, auth_timeout=connection.connect_timeout)
    _choose_keys(connection)
    files = known_hosts_files(said.get("userknownhostsfile", _KNOWN_HOSTS), connection)
    known = KnownHosts((*files, *map(Path, said.get("globalknownhostsfile", _OF_ALL).split())))
    name = connection.host if connection.port == _PORT else f"[{connection.host}]:{connection.port}"
    called = said.get("hostkeyalias", name)
    keys = known.keys(called)
    for kind, key in keys.items():
        connection.client.get_host_keys().add(name, kind, key)
    kwargs.update(transport_factory=functools.partial(wire, known=tuple(keys)))
    lax = said.get("stricthostkeychecking", "ask").lower() in ("accept-new", "no", "off")
    file = files[0] if lax or options.accept_new else None
    plain = connection.host if called == name else called  # an alias stands for all ports
    connection.client.set_missing_host_key_policy(_policy(known, connection.original_host, (called, plain), file))
    if isinstance(connection.gateway, str):
        connection.open_gateway = functools.partial(ProxyCommand, connection.gateway)
    elif connection.gateway is not None:
        connection.open_gateway = functools.partial(_through, connection)
    else:
        client, family = connection.client, said.get("addressfamily", "any")
        client.connect = functools.partial(_connect, client.connect, family)


def _connect(connect: Callable[..., None], family: str, **how: Any) -> None:
    connect(sock=dial(how["hostname"], how["port"], family, how["timeout"]), **how)


def _through(connection: fabric.Connection) -> paramiko.Channel:
    """Return a channel to a host's sshd through its jump host. For a host that is off, that one waits for minutes."""
    import paramiko

    jump, seconds = connection.gateway, connection.connect_timeout
    with turn(jump.host, int(jump.port), seconds):
        jump.open()
    try:
        to = connection.host, int(connection.port)
        channel: paramiko.Channel = jump.transport.open_channel("direct-tcpip", to, ("", 0), timeout=seconds)
    except paramiko.SSHException as error:
        if "timeout" not in str(error).lower():
            raise
        why = f"it does not answer within {seconds} s"
        raise not_through(connection.original_host, jump.original_host, why) from error
    return channel


def _choose_keys(connection: fabric.Connection) -> None:
    """Offer the keys that the configuration names, and those of the agent, as `ssh` does."""
    said, kwargs = connection.ssh_config, connection.connect_kwargs
    only = said.get("identitiesonly", "no").lower() == "yes"
    if only and not kwargs.get("key_filename"):
        kwargs["key_filename"] = list(_DEFAULT_KEYS)
    named = [os.path.expanduser(path) for path in kwargs.get("key_filename", ())]
    files = [path for path in named if os.path.exists(path) or os.path.exists(f"{path}.pub")]  # ssh passes over others
    kwargs["key_filename"] = [path for path in files if os.path.exists(path) and not _is_public(path)]
    if only:
        kwargs.update(look_for_keys=False)
    if only or "identityagent" in said:
        connection.client._agent = agent(said.get("identityagent"), files if only else None)


def _is_public(path: str) -> bool:
    return path.endswith(".pub") and not path.endswith("-cert.pub")  # of which Paramiko finds the private key


_DEFAULT_KEYS = tuple(f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ed25519"))
_KNOWN_HOSTS, _OF_ALL = "~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"
_PORT = 22  # without which names in files of host keys have none


def _policy(known: KnownHosts, host: str, names: tuple[str, str], file: Path | None) -> paramiko.MissingHostKeyPolicy:
    """Return what is done with an unknown key: it is written into `file`, as OpenSSH does with `accept-new`, or refused.

    `names` are what the files call the host at this port, and without one: a key that is known so is known at any port.
    """
    import paramiko

    called, plain = names

    class UnknownKey(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            if known.is_revoked(key):
                raise host_key_revoked(host)
            if key in known.keys(plain).values():
                return
            if (damaged := known.damaged(called)) is not None:
                raise host_key_unreadable(host, damaged.place, whole=not damaged.text)
            if file is None:
                raise paramiko.SSHException(f"{called} not found in known_hosts")
            try:
                add(file, called, key)
            except OSError as error:
                raise host_key_unwritten(host, str(file), error.strerror or str(error)) from error

    return UnknownKey()
