"""Mistakes in a plan's nodes, one by one right and together not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import LaunchSpec, RankSet
from jobctl.jobspec.plan import types
from jobctl.jobspec.plan.generation import members, with_ports
from jobctl.jobspec.planner.context import PlanError

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec


def check_folder(directory: str) -> None:
    """Raise PlanError if the path of the spec's folder is not text, which JSON could not hold."""
    try:
        directory.encode()
    except UnicodeEncodeError:
        shown = directory.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise PlanError(
            "not-utf-8",
            f"the path of the spec's folder is not UTF-8: `{shown}`",
            (),
            "give it another name; if it is UTF-8, your locale is not: `export LC_ALL=C.UTF-8`",
        ) from None


def check_nodes(
    spec: Spec, nodes: Sequence[types.Node], starts: Mapping[RankSet, LaunchSpec], one_machine: bool
) -> None:
    """Raise PlanError where nodes cannot run together.

    `starts` is how each kind of them starts its processes, `one_machine` whether all of them see the same files.
    """
    _refuse_unequal(nodes, starts)
    _refuse_neighbours(nodes)
    _refuse_ports(spec, nodes)
    if not one_machine:
        _refuse_unshared(spec, nodes)


def _refuse_unshared(spec: Spec, nodes: Sequence[types.Node]) -> None:
    shared = [name for node in nodes for name, value in node.launch.env if value == types.Slot("shared_scratch")]
    if shared and (spec.checkpoint is None or not spec.checkpoint.shared):
        raise PlanError(
            "no-shared-folder",
            f"`{shared[0]}` has to name a folder that all hosts see, and none is known",
            (spec.framework,),
            "add `checkpoint: /path/that/all/hosts/see`",
        )


def _refuse_unequal(nodes: Sequence[types.Node], starts: Mapping[RankSet, LaunchSpec]) -> None:
    launched = {ranks.nproc for ranks, start in starts.items() if start.equal}
    if len(launched) > 1:
        few, many = min(launched), max(launched)
        one, other = (next(n for n in nodes if n.launch.start and n.launch.nproc == count) for count in (few, many))
        raise PlanError(
            "unequal-nodes",
            f"the framework's launcher counts on as many processes on every node: {one.host.name} has {few}, "
            f"{other.host.name} {many}",
            ("devices",),
            f"say `devices: {{kind: …, count: {few}}}`, or leave the processes to jobctl",
        )


def _refuse_neighbours(nodes: Sequence[types.Node]) -> None:
    serving = [node for node in nodes if node.role == "server" and node.launch.one_port]
    alone = [node for node in serving for _ in range(node.launch.nproc)]
    if len(alone) > len({node.host.address for node in alone}):
        raise PlanError(
            "too-many-servers",
            f"old programs know one port for all servers, so each of the {len(alone)} needs a host of its own",
            ("ps", "servers"),
            "have at most one server on each host",
        )


def _refuse_ports(spec: Spec, nodes: Sequence[types.Node]) -> None:
    port = spec.rendezvous.port
    if port is None:
        return
    try:
        with_ports(members(nodes), nodes, port)
    except LookupError:
        raise PlanError(
            "out-of-range",
            f"processes also listen at ports after {port}, and there are too few before 65535",
            ("rendezvous", "port"),
            "choose a lower one",
        ) from None
