"""The agent that holds keys, and which of them are offered to a host, as the SSH configuration says.

Paramiko offers all keys of the agent at SSH_AUTH_SOCK, or none. With `IdentitiesOnly`, OpenSSH offers those whose public
keys are in files that the configuration names: the private one may be encrypted there, or nowhere but in the agent.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko

_SOCKET = "SSH_AUTH_SOCK"
_VARIABLE = re.compile(r"\$\w+|\$\{\w+\}")  # which holds the whole path


def agent(said: str | None, files: Iterable[str] | None) -> paramiko.Agent:
    """Return the agent that `IdentityAgent` names, asked at the first use. Of its keys it offers those of `files`, None: all."""
    import paramiko
    from paramiko.agent import AgentSSH

    only = None if files is None else {key for path in files for key in _public_keys(path)}

    class Chosen(paramiko.Agent):
        def __init__(self) -> None:
            AgentSSH.__init__(self)  # which asks nobody yet
            self._asked = False

        def get_keys(self) -> tuple[paramiko.AgentKey, ...]:
            place = None if self._asked else _place(said or _SOCKET)
            self._asked = True
            if place is not None:
                with contextlib.suppress(OSError):  # there is none any more
                    connection = socket.socket(socket.AF_UNIX)
                    connection.connect(place)
                    self._connect(connection)  # type: ignore[attr-defined]  # not in the stubs
            return tuple(key for key in super().get_keys() if only is None or {key.blob, key.asbytes()} & only)

    return Chosen()


def _place(said: str) -> str | None:
    """Return the socket that `IdentityAgent` means: a path, a variable that has it, or `none`."""
    if said == "none":
        return None
    if said == _SOCKET or _VARIABLE.fullmatch(said):
        return os.environ.get(said.strip("${}")) or None
    tokens = {"%%": "%", "%d": os.path.expanduser("~"), "%i": str(os.getuid()), "%u": os.environ.get("USER", "")}
    filled = re.sub(r"%[%diu]", lambda found: tokens[found[0]], os.path.expanduser(said))
    return re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], ""), filled)


def _public_keys(path: str) -> Collection[bytes]:
    """Return the public keys that belong to a file of a key, which may be the public one itself."""
    found: list[bytes] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(path if path.endswith(".pub") else f"{path}.pub").read_text("utf-8", "replace")
        found.append(base64.b64decode(text.split()[1], validate=True))
    with contextlib.suppress(OSError, ValueError):
        found += _public_part(Path(path).read_text("utf-8", "replace"))
    return found


_BEGIN, _END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"


def _public_part(text: str) -> Iterator[bytes]:
    """Yield the public key that OpenSSH puts, not encrypted, into the file of a private one."""
    import paramiko

    _, begun, rest = text.partition(_BEGIN)
    data = base64.b64decode("".join(rest.partition(_END)[0].split()))
    if begun and data.startswith(_MAGIC):
        parts = paramiko.Message(data.removeprefix(_MAGIC))
        for _ in ("cipher", "derivation of its key", "options of that"):
            parts.get_binary()
        if parts.get_int() == 1:
            yield parts.get_binary()
