"""What containers are made from, apart from jobctl: the spec, their host, and what was found there. Pure.

A container has a hash of it as a label. By that, another version of jobctl knows that it need not replace the container.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from jobctl.jobspec.plan.artefact_id import INPUTS_LABEL

if TYPE_CHECKING:
    from jobctl.jobspec.plan.types import HostRef
    from jobctl.jobspec.planner.context import Context
    from jobctl.jobspec.spec.model import Spec

InputsLabel = tuple[str, str]  # the label and its value


def inputs_of_job(spec: Spec, context: Context, members: Sequence[HostRef]) -> str:
    """Return a hash of what all containers of a job are made from; `members` are the hosts of its etcd.

    All keys of the spec count, as nobody can tell which of them another version reads for what. Those with their default
    values do not: another version may know more keys.
    """
    said = spec.model_dump(mode="json", exclude_defaults=True)
    outside = [context.target, context.owner, context.image]
    return hash_of(said, outside, [[home.name, home.address] for home in members])


def inputs_label(*inputs: object) -> InputsLabel:
    """Return the label of a container that is made from these inputs."""
    return INPUTS_LABEL, hash_of(*inputs)


def hash_of(*inputs: object) -> str:
    """Return a hash of values that JSON knows."""
    return sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
