"""The targets, and what others have to know of each: one entry each, so that nobody else compares their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from jobctl.jobspec.records import dataclass

TargetName = Literal["local", "compose", "ssh", "kubernetes", "slurm"]
PlaceKind = Literal["machine", "hosts", "cluster", "allocation"]
Starter = Literal["compose", "ssh"]


@dataclass(frozen=True, slots=True)
class TargetTraits:
    """What sets a target apart.

    `place` is where its jobs run: two targets of one place start the same containers. `no_hosts` says why it takes no hosts
    file, and the remedy (None: it takes one). `starter` starts the containers, where there are hosts. `takes_context` is
    whether `--context` and `--namespace` choose where its jobs run. `sends_code` is whether nodes get a copy of the code.
    `is_stream` is whether its artefacts are one stream of documents, which carry the code too. `mounts_by_name` is whether
    volumes say what a path means, and not the disk of a host.
    """

    place: PlaceKind
    no_hosts: tuple[str, str] | None = None
    starter: Starter = "compose"
    takes_context: bool = False
    sends_code: bool = True
    is_stream: bool = False
    mounts_by_name: bool = False

    @property
    def takes_hosts(self) -> bool:
        """Whether a hosts file says where the nodes run: then jobctl itself starts containers there."""
        return self.no_hosts is None

    @property
    def uses_compose(self) -> bool:
        """Whether Docker Compose starts the containers, where there are hosts."""
        return self.starter == "compose"

    @property
    def is_here(self) -> bool:
        """Whether all nodes run on this machine."""
        return self.place == "machine"

    @property
    def in_cluster(self) -> bool:
        """Whether nodes are pods of a cluster."""
        return self.place == "cluster"

    @property
    def in_allocation(self) -> bool:
        """Whether nodes are those of an allocation."""
        return self.place == "allocation"

    @property
    def chooses_nodes(self) -> bool:
        """Whether somebody else chooses the nodes, a cluster or Slurm."""
        return not self.takes_hosts and not self.is_here

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor of jobctl's recovers its jobs, and writes their history."""
        return not self.chooses_nodes


TARGETS: Mapping[TargetName, TargetTraits] = {
    "local": TargetTraits(
        place="machine",
        no_hosts=(
            "target `local` is this machine: it takes no hosts file",
            "leave out `--hosts` or `--target local`",
        ),
        sends_code=False,
    ),
    "compose": TargetTraits(place="hosts"),
    "ssh": TargetTraits(place="hosts", starter="ssh"),
    "kubernetes": TargetTraits(
        place="cluster",
        no_hosts=("target `kubernetes` takes no hosts file: the cluster chooses", "leave out `--hosts`"),
        takes_context=True,
        is_stream=True,
        mounts_by_name=True,
    ),
    "slurm": TargetTraits(
        place="allocation",
        no_hosts=("target `slurm` takes no hosts file: Slurm chooses", "leave out `--hosts`"),
    ),
}


def traits_of(target: str) -> TargetTraits:
    """Return the traits of a target. Raises KeyError for a name that is not one."""
    return TARGETS[cast(TargetName, target)]
