"""A connection from here to a host's sshd, at the first of its addresses that takes one, as OpenSSH makes it.

Paramiko knows no `AddressFamily`, and tries no other address once one says nothing, as where IPv6 leads nowhere.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
_ANSWERS = errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EAFNOSUPPORT


def dial(host: str, port: int, family: str, seconds: float) -> socket.socket:
    """Return a connection, to an address of the `family` that `AddressFamily` names; each gets so many seconds.

    Raises OSError, or Paramiko's NoValidConnectionsError where each address has an answer that is a refusal.
    """
    from paramiko.ssh_exception import NoValidConnectionsError

    failed: dict[Any, OSError] = {}
    wanted = _FAMILIES.get(family.lower(), socket.AF_UNSPEC)
    for kind, _, _, _, address in _resolved(host, port, wanted):
        try:
            made = socket.socket(kind, socket.SOCK_STREAM)
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT:  # as of a kernel without IPv6
                raise
            failed[address] = error
            continue
        made.settimeout(seconds)
        try:
            made.connect(address)
        except OSError as error:
            made.close()
            failed[address] = error
        else:
            return made
    for problem in failed.values():
        if problem.errno not in _ANSWERS:
            raise problem
    raise NoValidConnectionsError(failed)


def _resolved(host: str, port: int, family: int) -> list[tuple[Any, ...]]:
    """Return the addresses of a name. Raises OSError, also for a name that can be none: `gpu01..cluster`."""
    try:
        return list(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM))
    except UnicodeError as error:  # Python does not ask for it
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
