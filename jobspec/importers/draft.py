"""What an import finds, as data: keys of the spec, hosts, and what could not be carried over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias, TypeVar

from jobctl.jobspec.importers.escaping import Unknown, default_used, literal, with_defaults
from jobctl.jobspec.importers.notes import concealed, not_carried_over, to_check
from jobctl.jobspec.records import dataclass

T = TypeVar("T")
# A value of the spec. Texts are words (escaping.py).
Value: TypeAlias = str | int | tuple[Any, ...] | Mapping[str, Any] | None


class ImportProblem(Exception):
    """What cannot be imported: the message says the cause, `hint` the remedy, `line` the place in a file."""

    def __init__(self, message: str, hint: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.message, self.hint, self.line = message, hint, line


@dataclass(frozen=True, slots=True)
class HostLine:
    """A host as the hosts file names it."""

    name: str
    user: str | None = None
    port: int | None = None
    slots: int | None = None
    devices: tuple[int, ...] | None = None
    nodes: int = 1
    roles: tuple[str, ...] = ()

    @property
    def takes_nodes(self) -> bool:
        """Whether it counts for the job's `nodes`."""
        return not self.roles or bool({"trainer", "server"} & {*self.roles})


@dataclass(frozen=True, slots=True)
class Found:
    """A job: `fields` are the keys of its spec (nested as there), `remarks` stand beside them, `notes` below them."""

    fields: Mapping[str, Value]
    remarks: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    hosts: tuple[HostLine, ...] = ()
    missing: int = 0  # nodes whose hosts nothing names
    rank: int | None = None  # of the node that the command starts


@dataclass(slots=True)
class Draft:
    """A job while it is found, bit by bit. `name` is what its launcher calls it, `image` what its container is made of."""

    name: str | None = None
    image: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    hosts: dict[str, HostLine] = field(default_factory=dict)
    rank: int | None = None

    def set(self, path: str, value: Value, remark: str | None = None) -> None:
        """Put `value` at a dotted path of the spec; `remark` stands beside its top-level key."""
        *outer, last = path.split(".")
        block = self.fields
        for key in outer:
            block = block.setdefault(key, {})
        block[last] = value
        if remark:
            self.remarks[path.split(".")[0]] = remark

    def put(self, path: str, value: Value) -> None:
        """Put a value there, if there is one; a text is one as it stands, and no word yet."""
        if value not in (None, "", {}, ()):
            self.set(path, literal(value) if isinstance(value, str) else value)

    def add(self, path: str, value: Value) -> None:
        """Append `value` to the list at a dotted path."""
        self.set(path, (*(self.get(path) or ()), value))

    def get(self, path: str) -> Any:
        """Return the value at a dotted path, None if there is none."""
        block: Any = self.fields
        for key in path.split("."):
            block = block.get(key) if isinstance(block, dict) else None
        return block

    def drop(self, what: str, why: str) -> None:
        """Note that `what` is not carried over, and why."""
        self.notes.append(not_carried_over(what, why))

    def check(self, text: str) -> None:
        """Note what a person has to look at."""
        self.notes.append(to_check(text))

    def name_hosts(self, hosts: Iterable[HostLine]) -> None:
        """Name hosts; of one that is named before, nothing changes."""
        for host in hosts:
            self.hosts.setdefault(host.name, host)

    def read(self, word: str, how: Callable[[str], T], written: str) -> T | None:
        """Return the value that `word` says, None (and a note) where it says none."""
        try:
            value = how(with_defaults(word))
        except Unknown as unknown:
            self.drop(written, str(unknown))
            return None
        except ValueError as error:
            self.drop(written, str(error))
            return None
        if default_used(word):
            self.check(f"{concealed(written)}: the default is taken, as nothing else is set here")
        return value
