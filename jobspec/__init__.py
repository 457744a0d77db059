"""From a job spec to steps on hosts: the library behind the command `jobctl`, and its three first functions.

`load` reads a spec, `plan` decides where everything goes, `render` makes the files that hosts get. None of them connects to
anything. What brings a job up is in `jobctl.jobspec.operations`; docs/python-api.md shows both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

# Two packages have the names of two functions. Python binds a package here when it is first imported, so that has to be
# before the functions are defined: then `from jobctl.jobspec import plan` is the function, whatever is imported later.
import jobctl.jobspec.plan
import jobctl.jobspec.render  # noqa: F401

if TYPE_CHECKING:
    from jobctl.jobspec.operations.resolve.job import Compiled, Where
    from jobctl.jobspec.plan.types import Plan
    from jobctl.jobspec.render.artefact import Artefact

__all__ = ["load", "plan", "render"]


def load(spec: str | PathLike[str], where: Where | None = None, *, overrides: Sequence[str] = ()) -> Compiled:
    """Return a spec that is valid for its target and hosts. Raises InvalidSpec with everything that is wrong, and
    Refused if `where` makes no sense.

    `spec` is a file, or the name of a job that was started from one. `where` says where the job will run, by default on
    this machine. `overrides` are like `--set`: `key.path=value`.
    """
    from jobctl.jobspec.operations.resolve.job import Where, check, compiled_of

    return compiled_of(check(fspath(spec), overrides, where or Where()))


def plan(job: Compiled, *, nodes: int | None = None, devices: Mapping[str, int] | None = None) -> Plan:
    """Return the plan of a job: every node, container, variable and argument, as if nothing of it ran yet.

    `nodes` is how many nodes an elastic job gets. `devices` says how many devices hosts have, by their names, where neither
    the spec nor the hosts file does. Raises Refused if the job cannot be planned.
    """
    from jobctl.jobspec.operations.resolve.planning import plan_of

    return plan_of(job, count=nodes, devices=devices)


def render(plan: Plan) -> list[Artefact]:
    """Return the files that hosts, or a cluster, would get for the first generation of a plan.

    Raises RenderError for what the target cannot express.
    """
    from jobctl.jobspec.plan.generation import first_generation
    from jobctl.jobspec.render.artefact import render

    return list(render(plan, first_generation(plan)))
