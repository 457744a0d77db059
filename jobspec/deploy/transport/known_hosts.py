"""The host keys that this machine's user knows, as OpenSSH keeps them in files `known_hosts`.

Paramiko gives a whole file up for one line that it cannot read. OpenSSH passes over that line, and so does this, with a
warning; but no key is taken for new of a host whose line it may be.
"""

from __future__ import annotations

import base64
import functools
import hmac
import os
import re
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.errors import DeployWarning
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    import paramiko

HASHED = "|1|"  # begins a host's name of which only an HMAC is written down, after its salt


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A line: the names of hosts, and their key."""

    names: tuple[str, ...]
    key: paramiko.PKey
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """A line that cannot be read; `place` is FILE:LINE. Without `text` it is a FILE of which no line can be read."""

    place: str
    text: str

    def may_name(self, host: str) -> bool:
        """Say whether it may be the line of a host, as far as that can be told: two lines may have become one."""
        if not self.text or re.search(rf"{re.escape(host)}(?![\w.-])", self.text, re.IGNORECASE):
            return True
        names = [name for word in self.text.split() for name in word.split(",") if _WILD.search(name)]
        return any(_is(name, host) for name in (*names, *_HASHED_NAME.findall(self.text)))


_WILD = re.compile(r"[*?]")
_HASHED_NAME = re.compile(r"\|1\|[\w+/]{27}=\|[\w+/]{27}=")


class KnownHosts:
    """What several files say."""

    def __init__(self, paths: Iterable[Path]) -> None:
        lines = [line for path in paths if os.path.isfile(path) for line in _lines_of(path)]
        self._known = [line for line in lines if isinstance(line, KnownKey)]
        self._damaged = [line for line in lines if isinstance(line, DamagedLine)]
        self._revoked = {line.key for line in self._known if line.revoked}

    def keys(self, host: str) -> Mapping[str, paramiko.PKey]:
        """Return the keys of a host by their kinds, the first of each; `host` is `[NAME]:PORT` unless the port is 22."""
        found: dict[str, paramiko.PKey] = {}
        for line in self._known:
            if line.key not in self._revoked and _are(line.names, host):
                found.setdefault(line.key.get_name(), line.key)
        return found

    def is_revoked(self, key: paramiko.PKey) -> bool:
        """Say whether a line with `@revoked` has this key, whatever hosts it names."""
        return key in self._revoked

    def damaged(self, host: str) -> DamagedLine | None:
        """Return a line that cannot be read and may be that of a host."""
        return next((line for line in self._damaged if line.may_name(host)), None)


def add(path: Path, host: str, key: paramiko.PKey) -> None:
    """Write down the key of a host, in a line of its own: an editor, or a full disk, may have left the last one without an end."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        glue = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(glue + f"{host.lower()} {key.get_name()} {key.get_base64()}\n".encode())


def _lines_of(path: Path) -> Sequence[KnownKey | DamagedLine]:
    """Return what is in a file, which is read once for all hosts as long as nobody changes it."""
    now = path.stat()
    with _READING:
        return _read(path, (now.st_ino, now.st_size, now.st_mtime_ns))


_READING = threading.Lock()  # for all hosts at once


@functools.lru_cache(maxsize=8)
def _read(path: Path, stamp: tuple[int, ...]) -> Sequence[KnownKey | DamagedLine]:
    del stamp
    found: list[KnownKey | DamagedLine] = []
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:  # ssh passes over it, too
        warnings.warn(f"{path} cannot be read and is passed over: {error.strerror}", DeployWarning, 2)
        return (DamagedLine(str(path), ""),)
    for number, line in enumerate(text.split("\n"), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            known = _parsed(text)
        except Exception:  # whatever Paramiko, and what it stands on, raise for such bytes
            found.append(DamagedLine(f"{path}:{number}", text))
            warnings.warn(f"{path}:{number} cannot be read and is passed over: correct or remove it", DeployWarning, 2)
        else:
            found += [known] if known is not None else []
    return tuple(found)


def _parsed(text: str) -> KnownKey | None:
    """Return what a line says, None for what Paramiko knows nothing of: host certificates, and some kinds of keys."""
    import paramiko
    from paramiko.pkey import UnknownKeyType

    marker, *rest = text.split() if text.startswith("@") else ("", *text.split())
    if marker == "@cert-authority":
        return None
    names, kind, encoded = rest[:3]
    blob = base64.b64decode(encoded, validate=True)
    _are(names.split(","), "")
    if marker not in ("", "@revoked") or paramiko.Message(blob).get_text() != kind:
        raise ValueError
    try:
        key = paramiko.PKey.from_type_string(kind, blob)
    except UnknownKeyType:
        return None
    if key.asbytes() != blob:  # the name of another host may be glued to it
        raise ValueError
    return KnownKey(tuple(names.split(",")), key, marker == "@revoked")


def _are(names: Sequence[str], host: str) -> bool:
    """Say whether the names of a line are those of a host. `!` stands before one that is not. Raises ValueError as `_is`."""
    found = [name for name in names if _is(name.removeprefix("!"), host)]
    return bool(found) and not any(name.startswith("!") for name in found)


def _is(name: str, host: str) -> bool:
    """Say whether a name in a file is that of a host, in small letters or not. Raises ValueError for a name that is damaged.

    In a name that is not hashed `*` stands for any characters, and `?` for one.
    """
    host = host.lower()  # which is what OpenSSH hashes
    if not name.startswith(HASHED):
        name = name.lower()
        return name == host or (_WILD.search(name) is not None and _pattern(name).fullmatch(host) is not None)
    salt, mac = (base64.b64decode(part, validate=True) for part in name.removeprefix(HASHED).split("|"))
    return hmac.compare_digest(hmac.digest(salt, host.encode(), "sha1"), mac)


@functools.lru_cache(maxsize=1024)
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(one, re.escape(one)) for one in name))
