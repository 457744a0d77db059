"""The next generation: who takes part is given, where they meet is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jobctl.jobspec.deploy.errors import DeployError
from jobctl.jobspec.plan.generation import first_generation, next_generation, next_port
from jobctl.jobspec.plan.types import Generation, Node, Plan


def choose_generation(
    plan: Plan,
    last: Generation | None,
    grace: float,
    nodes: Sequence[Node],
    is_free: Callable[[str, int], bool],
    where: str,
) -> Generation:
    """Return the generation of `nodes` after `last` (the first, if None), at a port that `is_free` says is free.

    `where` names the machine of the port in errors. Raises DeployError.
    """
    try:
        if last is not None:
            again = replace(last, checkpoint_dir=_checkpoint_dir(plan, last))
            return next_generation(again, nodes, grace=grace, free=is_free)
        first = first_generation(replace(plan, nodes=tuple(nodes)))
        address, port = first.rendezvous.address, first.rendezvous.port
        if is_free(address, port):
            return first
        if plan.rendezvous.port is not None:
            raise DeployError(
                f"port {port} of `rendezvous.port` is taken on {where}",
                "choose another, or leave `rendezvous.port` out: a free one is found for each generation",
            )
        port = next_port(plan.job, 1, lambda port: is_free(address, port))
        return replace(first, rendezvous=replace(first.rendezvous, port=port))
    except LookupError as error:
        raise DeployError(str(error), "end what listens there, or set `rendezvous.port`") from error


def _checkpoint_dir(plan: Plan, last: Generation) -> str | None:
    """Return the plan's checkpoint directory, or the subdirectory of it that a run with `--fresh` trains into."""
    base = plan.checkpoint.dir if plan.checkpoint else None
    inside = base is not None and (last.checkpoint_dir or "").startswith(f"{base}/")
    return last.checkpoint_dir if inside else base
