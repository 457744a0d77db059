"""Opening a connection as OpenSSH would, with the user's SSH configuration.

Host keys are never accepted silently: an unknown one is refused unless the configuration (StrictHostKeyChecking
`accept-new` or `no`) or `--accept-new-host-keys` says otherwise; a changed one always is.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport.known_hosts import KnownHosts, add
from jobctl.jobspec.deploy.transport.proxy_command import ProxyCommand
from jobctl.jobspec.deploy.transport.ssh_problems import (
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
QUIET = 5.0
CONNECT_TIMEOUT = 10  # seconds, unless the SSH configuration has ConnectTimeout


def connect(host: Host, options: SshOptions) -> fabric.Connection:
    """Return a connection to `host`, with the user's SSH configuration applied. Raises HostError, and what Paramiko raises."""
    import paramiko

    connection = _prepared(host, options)
    try:
        connection.open()
    except Exception as error:
        close(connection)  # the jump host may have answered
        if isinstance(error, paramiko.ChannelException):  # there is no session yet, so it is of the jump host
            raise not_through(host.name, str(connection.gateway.original_host), error.text) from error
        raise
    for hop in _hops(connection):
        hop.transport.sock.settimeout(QUIET)
    return connection


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

    import fabric

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it logs tracebacks of what we say in a sentence
    runtime = {"runtime_ssh_path": str(options.config)} if options.config else {}
    config = fabric.Config(**runtime)
    identity = {"key_filename": [_identity(host)]} if host.identity else {}
    connection = fabric.Connection(host.name, user=host.user, port=host.port, config=config, connect_kwargs=identity)
    for hop in _hops(connection):
        _prepare(hop, options)
    return connection


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
    connection.connect_timeout = connection.connect_timeout or CONNECT_TIMEOUT
    kwargs = connection.connect_kwargs
    # A host that accepts connections and says nothing, or never ends the authentication, must not hold us up.
    kwargs.update(banner_timeout=connection.connect_timeout, auth_timeout=connection.connect_timeout)
    kwargs.update(transport_factory=wire)
    if "key_filename" in kwargs:  # ssh passes over those of its configuration that are not there
        kwargs["key_filename"] = [path for path in kwargs["key_filename"] if os.path.exists(os.path.expanduser(path))]
    if said.get("identitiesonly", "no") == "yes" and kwargs.get("key_filename"):
        kwargs.update(allow_agent=False, look_for_keys=False)
    files = [Path(os.path.expanduser(name)) for name in said.get("userknownhostsfile", _KNOWN_HOSTS).split()]
    known = KnownHosts((*files, Path("/etc/ssh/ssh_known_hosts")))
    name = connection.host if connection.port == _PORT else f"[{connection.host}]:{connection.port}"
    for kind, key in known.keys(name).items():
        connection.client.get_host_keys().add(name, kind, key)
    lax = said.get("stricthostkeychecking", "ask").lower() in ("accept-new", "no", "off")
    file = files[0] if lax or options.accept_new else None
    connection.client.set_missing_host_key_policy(_policy(known, connection.original_host, file))
    if isinstance(connection.gateway, str):
        connection.open_gateway = functools.partial(ProxyCommand, connection.gateway)


_KNOWN_HOSTS = "~/.ssh/known_hosts"
_PORT = 22  # without which names in files of host keys have none


def _policy(known: KnownHosts, host: str, file: Path | None) -> paramiko.MissingHostKeyPolicy:
    """Return what is done with an unknown key: it is written into `file`, as OpenSSH does with `accept-new`, or refused."""
    import paramiko

    class UnknownKey(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            if known.is_revoked(key):
                raise host_key_revoked(host)
            if (damaged := known.damaged(hostname)) is not None:
                raise host_key_unreadable(host, damaged.place, whole=not damaged.text)
            if file is None:
                raise paramiko.SSHException(f"{hostname} not found in known_hosts")
            try:
                add(file, hostname, key)
            except OSError as error:
                raise host_key_unwritten(host, str(file), error.strerror or str(error)) from error

    return UnknownKey()
