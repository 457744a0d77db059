"""The user's SSH configuration, as OpenSSH reads it: Paramiko, which reads it here, knows no `Include`.

A file that is included is put in its place. Where that is in a block, a block of such a file is for hosts that both are for.
"""

from __future__ import annotations

import functools
import glob
import io
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    import paramiko

USER, SYSTEM = "~/.ssh/config", "/etc/ssh/ssh_config"
DEEPEST = 16  # files that include each other, as in OpenSSH
_LINE = re.compile(r"(\w+)(?:\s*=\s*|\s+)(\S.*)")
_COMMENT = re.compile(r"\s+#.*")
_CONDITIONS = ("host", "originalhost", "user", "localuser", "exec")  # of `Match`, that Paramiko knows
_NEVER = "originalhost !*"  # Paramiko takes a condition that it does not know for one that holds
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a connection leads. The configuration says the rest."""

    name: str
    user: str | None = None
    port: int | None = None


def read_config(given: Path | None, to: Destination | None = None) -> paramiko.SSHConfig:
    """Return what `given` says, otherwise the files of this user and of this machine.

    The user and the port of `to` count before these, as `ssh -l USER -p PORT` does: also in conditions, and as `%r` and `%p`.
    Raises OSError for a file that cannot be read, ValueError or Paramiko's ConfigParseError for a line that cannot.
    """
    import paramiko

    found, named = paramiko.SSHConfig(), False
    options = {"User": to.user, "Port": to.port} if to else {}
    found.parse(io.StringIO("\n".join(f"{key} {value}" for key, value in options.items() if value is not None)))
    for name in [str(given)] if given else [USER, SYSTEM]:
        path = Path(os.path.expanduser(name))
        if given or path.is_file():
            folder = path.parent if name == SYSTEM else Path(os.path.expanduser(USER)).parent
            text = "\n".join(_lines(path, folder))
            found.parse(io.StringIO(text))
            named = named or "%l" in text
    # Without `%l`, Paramiko need not ask DNS for the full name of this machine, for each IdentityFile.
    unused = () if named else ("%l",)
    tokens = {key: [one for one in known if one not in unused] for key, known in found.TOKENS_BY_CONFIG_KEY.items()}
    found.TOKENS_BY_CONFIG_KEY = {**tokens, "proxycommand": []}  # see proxy_command()
    return found


def _lines(path: Path, folder: Path, outer: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the lines of a file with those of the files that it includes, which are in `folder` unless they say where.

    `outer`: the conditions of the block that includes it.
    """
    if depth > DEEPEST:
        raise ValueError(f"{path}: more than {DEEPEST} files include each other")
    block = outer
    for line in path.read_text("utf-8", "surrogateescape").split("\n"):
        found = _LINE.fullmatch(line.strip())
        if found is None:
            yield line
            continue
        key, value = found[1].lower(), found[2]
        if not key.endswith("command") and '"' not in value:  # what a shell reads has its own comments
            value = _COMMENT.sub("", value)
        if key == "include":
            for name in _named(_words(value, path), folder):
                yield from _lines(name, folder, block, depth + 1)
            yield f"match {block or 'all'}"
        elif key in ("host", "match"):
            block = " ".join(filter(None, (_conditions(key, _words(value, path)), outer)))
            yield f"match {block or 'all'}" if outer or key == "match" else f"{key} {value}"
        else:
            yield f"{key} {value}"


def _words(value: str, path: Path) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{path}: `{value}`: {error}") from error


def _named(patterns: Sequence[str], folder: Path) -> Iterator[Path]:
    """Yield the files that a line includes, in the order in which OpenSSH does."""
    for pattern in patterns:
        for name in sorted(glob.glob(os.path.join(glob.escape(str(folder)), os.path.expanduser(pattern)))):
            if os.path.isfile(name):
                yield Path(name)


def _conditions(key: str, words: Sequence[str]) -> str:
    """Return the conditions of a block as those of `Match`, nothing for a block that is for all hosts."""
    if key == "host":  # where a comma separates nothing, as it does in a condition
        return f"originalhost {shlex.quote(','.join(word for word in words if ',' not in word) or '!*')}"
    found, left = list[str](), iter(words)
    for word in left:
        sign, name = "!" if word.startswith("!") else "", word.removeprefix("!").lower()
        if name in ("canonical", "final"):
            # Fedora has `Match final all` in its files, which an earlier Paramiko takes for a mistake.
            found += [f"{sign}{name}"] if name != "final" or _knows_final() else []
        elif name != "all":
            value = shlex.quote(next(left, ""))
            found.append(f"{sign}{name} {value}" if name in _CONDITIONS else _NEVER)
    return " ".join(found)


@functools.cache
def _knows_final() -> bool:
    """Say whether this Paramiko knows that condition: 3.3 and later."""
    import paramiko

    try:
        paramiko.SSHConfig().parse(io.StringIO("match final"))
    except paramiko.SSHException:
        return False
    return True


def jump_hosts(said: paramiko.SSHConfigDict) -> Sequence[Destination]:
    """Return the hosts that `ProxyJump` names, in the order in which they are passed; none where `ProxyCommand` counts."""
    named = str(said["proxyjump"]) if _first(said) == "proxyjump" else "none"
    return [] if named.lower() == "none" else [_destination(one.strip()) for one in named.split(",")]


def proxy_command(said: paramiko.SSHConfigDict) -> str | None:
    """Return what `ProxyCommand` says, with its tokens; None where it says `none`, or `ProxyJump` counts."""
    return said["proxycommand"] if _first(said) == "proxycommand" else None


def _first(said: paramiko.SSHConfigDict) -> str | None:
    return next((key for key in said if key in ("proxyjump", "proxycommand")), None)


def _destination(text: str) -> Destination:
    user, _, place = text.removeprefix("ssh://").rstrip("/").rpartition("@")
    name, _, port = place.removeprefix("[").partition("]:" if place.startswith("[") else ":")
    if ":" in port:  # an address of IPv6 without brackets
        name, port = place, ""
    return Destination(name.rstrip("]"), user or None, int(port) if port.isdigit() else None)


def known_hosts_files(said: str, connection: Any) -> Sequence[Path]:
    """Return the files that `UserKnownHostsFile` names, with its tokens filled in; /dev/null for `none`. At least one."""
    names = [name for name in said.split() if name.lower() != "none"] or [os.devnull]
    here = {"%d": os.path.expanduser("~"), "%i": str(os.getuid()), "%u": os.environ.get("USER", "")}
    alias = {"%k": connection.ssh_config.get("hostkeyalias", connection.original_host)}
    return [Path(os.path.expanduser(filled_in(name, connection, {**here, **alias}))) for name in names]


def filled_in(text: str, connection: Any, more: Mapping[str, str] | None = None) -> str:
    """Return what the configuration says with the tokens filled in that stand for a host, and `more` of them."""
    there = {"%h": connection.host, "%n": connection.original_host, "%p": str(connection.port), "%r": connection.user}
    tokens = {"%%": "%", **there, **(more or {})}
    return re.sub("%[%a-z]", lambda one: tokens.get(one[0], one[0]), text)


def seconds_of(said: paramiko.SSHConfigDict) -> int | None:
    """Return what `ConnectTimeout` says, None where that is nothing: OpenSSH knows `90`, `90s` and `1m30s`."""
    text = str(said.get("connecttimeout", "")).lower()
    if not re.fullmatch(r"(?:\d+[smhdw]?)+", text):
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in re.findall(r"(\d+)([smhdw]?)", text)) or None
