"""What a job's hosts get before it starts: code and data."""

from __future__ import annotations

from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """The user's code: sent from `source` (absolute) to `target`, less what matches `exclude`; `version` is its hash.

    `outputs` are folders below `target` that are kept when the code changes, `results` files that are. `archive` is the
    code itself where manifests carry it: a compressed tar file, in base64. `withheld` are files that are not sent, by
    their absolute paths, each with the reason; `include` are patterns of files that are sent all the same.
    """

    source: str
    target: str
    exclude: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    version: str | None = None
    archive: str | None = None
    include: tuple[str, ...] = ()
    withheld: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A folder of data: sent from `source` (absolute) to hosts, which keep it as `name` between jobs, and read at `target`.

    `version` is a hash of its files. `host` is where the folder is, as NAME or USER@NAME for SSH; None: on this machine.
    """

    source: str
    target: str
    name: str
    version: str | None = None
    host: str | None = None

    @property
    def place(self) -> str:
        """What the user calls the folder: PATH, or HOST:PATH."""
        return self.source if self.host is None else f"{self.host}:{self.source}"


@dataclass(frozen=True, slots=True)
class Build:
    """What `image` is built from: a folder and a Dockerfile on this machine, by their absolute paths.

    `args` are the values of its arguments, `target` its stage (None: the last), `on` the host whose engine builds (None:
    this machine's). `withheld` are files that the engine does not get, by their absolute paths, each with the reason.
    """

    image: str
    context: str
    dockerfile: str
    args: tuple[tuple[str, str], ...] = ()
    target: str | None = None
    on: str | None = None
    withheld: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    """What the hosts of nodes get: the code, and data beside it."""

    code: Code | None = None
    data: tuple[Dataset, ...] = ()
