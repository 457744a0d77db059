"""The hosts file: one host a line, with ranges, keys and comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.diagnostics import Diagnostic, Span, closest, in_order
from jobctl.jobspec.spec.reading.source import BadSource, read_text, split_lines

MAX_HOSTS = 65_536


@dataclass(frozen=True, slots=True)
class Host:
    """One host. `slots` is how many devices it has, `devices` which ones; None where the file does not say.

    `nodes` is how many nodes it takes at once; they share its devices.
    """

    name: str
    user: str | None = None
    port: int | None = None
    addr: str | None = None
    slots: int | None = None
    devices: tuple[int, ...] | None = None
    interface: str | None = None
    identity: str | None = None
    docker: str | None = None
    dir: str = "~/.jobctl"
    nodes: int = 1
    roles: tuple[str, ...] = ()
    spare: bool = False

    @property
    def local(self) -> bool:
        """Whether this is the machine that jobctl runs on, reached without SSH."""
        return self.name == "localhost"

    @property
    def trains(self) -> bool:
        """Whether it takes nodes of collective jobs: it does unless its roles are others."""
        return self.takes("trainer")

    def takes(self, role: str) -> bool:
        """Say whether it takes nodes of a role: any, unless its line names some."""
        return not self.roles or role in self.roles

    @property
    def at_home(self) -> bool:
        """Whether its directory is in the home of the user who logs in there."""
        return not self.local and not self.dir.startswith("/")

    @property
    def place(self) -> tuple[str, str | None, str | None]:
        """Where a job's files and containers are on it: the directory, the user in whose home that is, and the engine."""
        path = str(PurePosixPath(self.dir.removeprefix("~/")))
        return path, self.user if self.at_home else None, self.docker

    @property
    def address(self) -> str:
        """Where the other nodes reach it."""
        return self.addr or ("127.0.0.1" if self.local else self.name)


@dataclass(frozen=True, slots=True)
class LoadedHosts:
    """What became of a hosts file."""

    hosts: tuple[Host, ...]
    diagnostics: tuple[Diagnostic, ...]


class _Bad(ValueError):
    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


def load_hosts(path: Path) -> LoadedHosts:
    """Load the hosts file `path`; never raises for what is wrong with it."""
    try:
        return parse_hosts(read_text(path, str(path), "name another one, or write a line with each host"), str(path))
    except BadSource as bad:
        return LoadedHosts((), bad.diagnostics)


def parse_hosts(text: str, file: str) -> LoadedHosts:
    """Return the hosts in `text`, called `file` in messages."""
    hosts: dict[str, Host] = {}
    lines: dict[str, int] = {}
    addresses: dict[str, Host] = {}
    found: list[Diagnostic] = []
    for number, line in enumerate(split_lines(text), 1):
        tokens = list(_tokens(line, number, file))
        if not tokens:
            continue
        try:
            new = _hosts(tokens, found)
        except _Bad as bad:
            found.append(_diagnostic(bad, *tokens[0]))
            continue
        for host in new:
            if host.name in hosts:
                hint = f"the first time is in line {lines[host.name]}; `nodes=2` lets one host take two nodes"
                message = f"the host `{host.name}` appears twice"
                found.append(Diagnostic("error", "repeated-host", message, tokens[0][1], hint))
                break
            first = addresses.setdefault(canonical(host.address), host)
            if first is not host:
                found.append(_same_address(host, first, lines[first.name], tokens))
            hosts[host.name], lines[host.name] = host, number
    if not hosts and not found:
        span = Span(file, 1, 1, 1, 1)
        found.append(Diagnostic("error", "no-hosts", f"`{file}` names no host", span, "write one host on each line"))
    return LoadedHosts(tuple(hosts.values()), in_order(found))


def _same_address(host: Host, first: Host, line: int, tokens: list[tuple[str, Span]]) -> Diagnostic:
    """Return what is wrong with a host at the address of another: the other nodes would take one for the other."""
    at = next((span for token, span in tokens if token.startswith("addr=")), tokens[0][1])
    where = "beside it" if line == at.line else f"in line {line}"
    message = f"`{host.name}` has the address {host.address} of `{first.name}` {where}"
    hint = "each machine has one line, and an address of its own; `nodes=2` lets it take two nodes"
    return Diagnostic("error", "repeated-address", message, at, hint)


def _without_ssh(pattern: str, at: Span) -> Diagnostic:
    """Return that what a line says of SSH has no effect."""
    message = f"`localhost` is this machine, reached without SSH: the user and the port of `{pattern}` have no effect"
    hint = f"write `{pattern.replace('localhost', '127.0.0.1')}` if SSH is meant, to this machine or through a tunnel"
    return Diagnostic("warning", "localhost-without-ssh", message, at, hint)


def canonical(address: str) -> str:
    """Return an address in the one of its spellings that is the same for all."""
    import ipaddress

    return str(ipaddress.ip_address(address)) if ":" in address else address.lower()


class UnknownHost(Exception):
    """A choice of hosts that names one which is not in the file; `hint` has a similar one."""

    def __init__(self, name: str, hint: str | None) -> None:
        super().__init__(f"there is no host `{name}` in the hosts file")
        self.hint = hint


def choose(hosts: Sequence[Host], on: str | None, exclude: str | None) -> tuple[Host, ...]:
    """Return those of `hosts` that are named in `on` (None: all) and not in `exclude`, in the order of the file.

    Both are names or ranges with commas between: `gpu[01-04],gpu07`. Raises UnknownHost.
    """
    known = [host.name for host in hosts]
    wanted = set(known if on is None else _named(on, known))
    unwanted = set(() if exclude is None else _named(exclude, known))
    return tuple(host for host in hosts if host.name in wanted and host.name not in unwanted)


def _named(text: str, known: Sequence[str]) -> list[str]:
    names: list[str] = []
    for pattern in re.split(r",(?![^\[]*\])", text):
        try:
            names += expand(pattern)
        except _Bad as bad:
            raise UnknownHost(pattern, bad.hint) from bad
    if unknown := set(names).difference(known):
        name = next(name for name in names if name in unknown)
        raise UnknownHost(name, closest(name, known))
    return names


def _tokens(line: str, number: int, file: str) -> Iterator[tuple[str, Span]]:
    for match in re.finditer(r"\S+", line):
        if match[0].startswith("#"):
            return
        yield match[0], Span(file, number, match.start() + 1, number, match.end() + 1)


def _diagnostic(bad: _Bad, token: str, span: Span) -> Diagnostic:
    """Return what is wrong with a word of a line."""
    hint = "a comment needs a space before its `#`" if "#" in token else bad.hint
    return Diagnostic("error", bad.code, bad.message, span, hint)


def _hosts(tokens: list[tuple[str, Span]], found: list[Diagnostic]) -> list[Host]:
    (pattern, _), *rest = tokens
    user, names, port = _pattern(pattern)
    if "localhost" in names and (user is not None or port is not None):
        found.append(_without_ssh(pattern, tokens[0][1]))
    values: dict[str, Any] = {}
    for token, span in rest:
        try:
            key, value = _value(token)
            if key in values:
                raise _Bad("repeated-key", f"the key `{key}` appears twice")
            values[key] = value
        except _Bad as bad:
            found.append(_diagnostic(bad, token, span))
            if "#" in token:  # the rest are words of the comment
                break
    slots, last = values.get("slots"), max(values.get("devices", ()), default=0)
    if slots is not None and last >= slots:
        span = next(span for token, span in rest if token.startswith("devices="))
        message = f"device {last} is beyond the {slots} slots of this line"
        found.append(Diagnostic("error", "ids-beyond-slots", message, span, "devices are numbered from 0 on"))
    try:
        addresses = _addresses(values.pop("addr", None), len(names))
    except _Bad as bad:
        found.append(_diagnostic(bad, *next(pair for pair in rest if pair[0].startswith("addr="))))
        return []
    return [
        Host(name=name, user=user, port=port, addr=address, **values)
        for name, address in zip(names, addresses, strict=True)
    ]


_HOST = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<name>\[[0-9a-fA-F:]*:[0-9a-fA-F:]*\]|[^:@\s]+)(?::(?P<port>.*))?")


def _pattern(text: str) -> tuple[str | None, list[str], int | None]:
    match = _HOST.fullmatch(text)
    port = None if match is None else match["port"]
    if (match is None or port is not None) and is_ipv6(address := text.rpartition("@")[2]):
        hint = f"an IPv6 address is written in brackets: `[{address}]`, with a port `[{address}]:22`"
        raise _Bad("bad-host", f"`{address}` is an IPv6 address without brackets", hint)
    if match is None:
        raise _Bad("bad-host", f"`{text}` is not a host", "write `user@name:port`, or `name[01-16]` for a range")
    if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise _Bad("bad-host", f"`{port}` is not a port", "write a number from 1 to 65535 after the colon")
    name = match["name"]
    if name.startswith("[") and ":" in name and not is_ipv6(name[1:-1]):
        hint = "brackets are for an IPv6 address, `[fd77::6]`, or a range, `name[01-16]`"
        raise _Bad("bad-host", f"`{name[1:-1]}` is not an IPv6 address", hint)
    names = [name[1:-1]] if name.startswith("[") and ":" in name else expand(name)
    _check_numbers(names, "bad-host")
    return match["user"], names, None if port is None else int(port)


def is_address(text: str) -> bool:
    """Say whether `text` is an IP address, and not a name."""
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_ipv6(text: str) -> bool:
    """Say whether `text` is an IPv6 address, without brackets."""
    import ipaddress

    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


_PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_RANGE = re.compile(r"\[(\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*)\]", re.ASCII)


def expand(pattern: str) -> list[str]:
    """Return the names of `name[01-16]`, in order, repeated ones too; a name without a range is itself. Raises _Bad."""
    if not _PLAIN.fullmatch(_RANGE.sub("0", pattern)):
        raise _Bad("bad-host", f"`{pattern}` is not a host", "letters, digits, `-` and `.`; a range is `name[01-16]`")
    if "[" not in pattern:
        return [pattern]
    count = 1
    for ranges in _RANGE.findall(pattern):
        count *= sum(len(_numbers(part, pattern)) for part in ranges.split(","))
        if count > MAX_HOSTS:
            raise _Bad("bad-host", f"`{pattern}` names more than {MAX_HOSTS} hosts")
    parts = [_words(part, pattern) if odd % 2 else [part] for odd, part in enumerate(_RANGE.split(pattern))]
    return ["".join(words) for words in product(*parts)]


def _words(ranges: str, pattern: str) -> list[str]:
    parts = [(len(part.partition("-")[0]), _numbers(part, pattern)) for part in ranges.split(",")]
    return [f"{number:0{digits}}" for digits, numbers in parts for number in numbers]


def _numbers(part: str, pattern: str) -> range:
    first, _, last = part.partition("-")
    last = last or first
    if int(last) < int(first):
        raise _Bad("bad-host", f"the range `{part}` of `{pattern}` runs backwards")
    if len(first) != len(last) and (last[0] == "0" or (first[0] == "0" and first != "0")):
        message = f"the range `{part}` of `{pattern}` has leading zeros at one end only"
        raise _Bad("bad-host", message, f"write `{first:0>{len(last)}}-{last:0>{len(first)}}`")
    return range(int(first), int(last) + 1)


def _addresses(pattern: str | None, count: int) -> list[str | None]:
    if pattern is None:
        return [None] * count
    plain = pattern[1:-1] if pattern.startswith("[") and pattern.endswith("]") else pattern
    if is_ipv6(plain):
        addresses = [plain]
    elif re.search(r":\d*$", pattern):
        hint = (
            "`addr` is an address without a port: jobctl chooses the ports; SSH's stands behind the name, `gpu01:2222`"
        )
        raise _Bad("bad-address", f"`addr={pattern}` is not an address", hint)
    else:
        addresses = expand(pattern)
        _check_numbers(addresses, "bad-address")
    if len(addresses) != count:
        message = f"`addr={pattern}` is {len(addresses)} address{'es' if len(addresses) > 1 else ''} for {count} hosts"
        raise _Bad("bad-address", message, "give as many, e.g. `gpu[1-4] addr=10.0.0.[1-4]`")
    return list(addresses)


# Keys.


def _check_numbers(names: Sequence[str], code: str) -> None:
    """Raise _Bad for four numbers that are not an IPv4 address: no machine has such a name."""
    for name in names:
        if re.fullmatch(r"\d+(?:\.\d+){3}", name) and not all(int(number) <= 255 for number in name.split(".")):
            raise _Bad(code, f"`{name}` is not an IPv4 address", "each of its four numbers is at most 255")


def _number(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise _Bad("bad-value", f"expected a number from 1 to 99999, found `{text}`")
    return int(text)


def _ids(text: str) -> tuple[int, ...]:
    from jobctl.jobspec.spec.scalars import parse_ids

    try:
        ids = parse_ids(text)
    except ValueError as error:
        raise _Bad("bad-value", f"`{text}` are not device numbers", "write them as `0-3,6`") from error
    assert isinstance(ids, tuple)
    return ids


def _roles(text: str) -> tuple[str, ...]:
    roles = tuple(text.split(","))
    wrong = [role for role in roles if role not in ("trainer", "server", "scheduler", "etcd")]
    if wrong:
        raise _Bad("bad-value", f"unknown role `{wrong[0]}`", "`trainer`, `server`, `scheduler` or `etcd`")
    return roles


def _docker(text: str) -> str:
    if text == "sudo" or re.match(r"[a-z]+://.", text):
        return text
    hint = f"write `docker=unix://{text}`" if text.startswith("/") else "`unix:///run/user/1000/docker.sock` or `sudo`"
    raise _Bad("bad-value", f"`{text}` is not the URL of an engine", hint)


KEYS: dict[str, Callable[[str], object]] = {
    "addr": str,
    "slots": _number,
    "devices": _ids,
    "interface": str,
    "identity": str,
    "docker": _docker,
    "dir": str,
    "nodes": _number,
    "roles": _roles,
}
FLAGS = ("spare",)


def _value(token: str) -> tuple[str, object]:
    key, equals, text = token.partition("=")
    if not equals:
        if key in FLAGS:
            return key, True
        if key in KEYS:
            raise _Bad("bad-value", f"`{key}` has no value", f"write `{key}=…`")
        hint = closest(key, (*FLAGS, *KEYS)) or "one host a line; after it `key=value` or `spare`"
        raise _Bad("unknown-key", f"unknown word `{key}`", hint)
    if key in FLAGS:
        raise _Bad("unknown-key", f"`{key}` takes no value", f"write `{key}` alone")
    if key not in KEYS:
        raise _Bad("unknown-key", f"unknown key `{key}`", closest(key, KEYS) or f"known keys: {', '.join(KEYS)}")
    if not text:
        raise _Bad("bad-value", f"`{key}` has no value", f"write `{key}=…`")
    return key, KEYS[key](text)
