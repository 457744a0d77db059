"""What the planner may know beside the spec and the hosts, and how it says that a job cannot be planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jobctl.jobspec.plan.types import HostRef

Target = Literal["local", "compose", "ssh", "kubernetes"]


class PlanError(Exception):
    """A job that cannot be planned; `path` is the spec's key to change, `hint` the remedy."""

    def __init__(self, code: str, message: str, path: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.path, self.hint = code, message, path, hint


@dataclass(frozen=True, slots=True)
class Context:
    """What the planner may know of the outside.

    `directory` is the absolute folder of the spec, `owner` is user@machine, `script_here` whether the script
    lies on this machine (only used to watch it for changes).
    """

    target: Target
    directory: str
    owner: str
    version: str
    script_here: bool = False


def local_hosts(nodes: int) -> tuple[HostRef, ...]:
    """Return where the nodes of a job on this machine live: node i at 127.0.0.(i+2)."""
    return tuple(HostRef("localhost", _loopback(i + 2)) for i in range(nodes))


def _loopback(number: int) -> str:
    return f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
