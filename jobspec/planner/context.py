"""What the planner is given, and how it says that a job cannot be planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.targets import TargetTraits, traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.frameworks.base import Framework, Role
    from jobctl.jobspec.spec.hosts import Host
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.targets import TargetName


class PlanError(Exception):
    """A job that cannot be planned; `path` is the spec's key to change, `hint` the remedy."""

    def __init__(self, code: str, message: str, path: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.path, self.hint = code, message, path, hint


@dataclass(frozen=True, slots=True)
class Context:
    """What the planner may know of the outside.

    `directory` is the absolute folder of the spec, `owner` is user@machine, `script_here` whether the script
    is on this machine (only used to watch it for changes). `image` is the name of the image that the spec has built, with
    its content in the tag; None where nothing is built.
    """

    target: TargetName
    directory: str
    owner: str
    version: str
    script_here: bool = False
    image: str | None = None

    @property
    def traits(self) -> TargetTraits:
        """What sets its target apart."""
        return traits_of(self.target)


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts that nodes (by number) and services (by name) have already; a new job has none."""

    nodes: Mapping[int, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """A job as the planner is asked for it.

    `most` is how many nodes it may get, `devices` how many devices were counted on hosts, by their names.
    """

    spec: Spec
    hosts: Sequence[Host]
    context: Context
    placement: Placement
    devices: Mapping[str, int]
    most: int
    framework: Framework
    roles: tuple[Role, ...]
