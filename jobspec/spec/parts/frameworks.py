"""The options of single frameworks: one block for each."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from jobctl.jobspec.spec.base import Part
from jobctl.jobspec.spec.parts.values import Texts
from jobctl.jobspec.spec.scalars import Bool, Duration, positive


class TorchOptions(Part):
    """Options for `framework: torch`."""

    torchrun: Texts = Field(
        default=(), description="Further options of torchrun.", examples=[["--numa-binding", "node"]]
    )
    rejoin: Bool = Field(
        default=False,
        description="Mode `ps`: whether a trainer that fails may restart alone. The script connects to the servers in `JOBCTL_SERVERS` itself.",
        examples=[True],
    )


class PaddleOptions(Part):
    """Options for `framework: paddle`."""

    launcher: Literal["launch", "legacy"] = Field(
        default="launch",
        description="`launch` runs `paddle.distributed.launch`. `legacy` starts the trainers directly, for images with Paddle 1 or 2.0 to 2.2.",
        examples=["legacy"],
    )
    elastic_timeout: Duration | None = Field(
        default=None,
        description="How long Paddle waits for more nodes than the minimum, rounded up to whole seconds. Default: `30s`.",
        examples=["1m"],
    )


class MindsporeOptions(Part):
    """Options for `framework: mindspore`."""

    launcher: Literal["roles", "msrun"] = Field(
        default="roles",
        description="`roles` starts the scheduler and the workers directly. `msrun` starts the workers through msrun.",
        examples=["msrun"],
    )
    recovery: Literal["restart", "native"] = Field(
        default="restart",
        description="`restart` restarts all processes. `native` uses MindSpore's own disaster recovery (MindSpore 2.5 or earlier, on GPUs, with a shared `checkpoint`).",
        examples=["native"],
    )
    node_timeout: Annotated[Duration, AfterValidator(positive("`mindspore.node_timeout`"))] | None = Field(
        default=None,
        description="End all workers when one has been silent for this long (`MS_NODE_TIMEOUT`). Default: one year.",
        examples=["30s"],
    )
