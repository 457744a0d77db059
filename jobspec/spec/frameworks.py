"""The frameworks, and what the language and its tools have to know of each: one entry each.

What a framework's processes are started with is in its module in `jobspec/frameworks`, which is called like its
entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeGuard

from jobctl.jobspec.records import dataclass

FrameworkName = Literal["torch", "paddle", "mindspore", "jax"]
KINDS = ("cpu", "gpu", "xpu", "dcu", "npu")
# By which variables the library of a kind of devices learns which of them a process sees.
VISIBLE: Mapping[str, tuple[str, ...]] = {
    "gpu": ("CUDA_VISIBLE_DEVICES",),
    "dcu": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "xpu": ("XPU_VISIBLE_DEVICES",),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES",),
}


@dataclass(frozen=True, slots=True)
class Traits:
    """What sets a framework apart.

    `starts` says for `jobctl init` what jobctl starts, `elastic` how a job gets a range of nodes (empty: it cannot). `kinds`
    are the devices that it runs on. `no_ps` says why it has no mode `ps` (empty: it has). `operators` are those of
    Kubernetes that run it, beside `none`. `told` (a regular expression) are the variables by which its processes know each
    other, `named` what it is called in an image or an import. `launchers` are the programs and modules by which users start
    its processes where nobody else does.
    """

    starts: str
    elastic: str
    told: str
    named: str
    kinds: tuple[str, ...] = KINDS
    no_ps: str = ""
    operators: tuple[str, ...] = ()
    launchers: tuple[str, ...] = ()


# Where variables or names could be those of several, the last counts: those of torch are the most general.
FRAMEWORKS: Mapping[FrameworkName, Traits] = {
    "torch": Traits(
        starts="torchrun starts one process per device; your script calls init_process_group()",
        elastic='or "2:4" for an elastic job',
        told="MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|LOCAL_RANK",
        named="torch",
        operators=("kubeflow", "trainer"),
        launchers=("torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed"),
    ),
    "paddle": Traits(
        starts="paddle.distributed.launch starts one process per device",
        elastic='or "2:4" for an elastic job, with `etcd: {managed: {}}`',
        told=r"PADDLE_\w+|TRAINING_ROLE|FLAGS_selected_\w+",
        named="paddle",
        operators=("paddle-operator", "kubeflow"),
        launchers=("fleetrun", "paddle.distributed.launch"),
    ),
    "mindspore": Traits(
        starts="a scheduler and one worker process per device",
        elastic="",
        told="MS_(ROLE|WORKER_NUM|SCHED_HOST|SCHED_PORT|NODE_ID)",
        named="mindspore",
        kinds=("cpu", "gpu", "npu"),
        no_ps="set_param_ps was removed in 2.6",
        launchers=("msrun",),
    ),
    "jax": Traits(
        starts="one process per device; your script calls jax.distributed.initialize(), see docs/jax.md",
        elastic='or "2:4" for an elastic job',
        told="JAX_(COORDINATOR_ADDRESS|NUM_PROCESSES|PROCESS_ID)",
        named=r"\bjax|\bflax",
        kinds=("cpu", "gpu"),
        no_ps="JAX has no parameter servers",
    ),
}


def is_framework(name: str) -> TypeGuard[FrameworkName]:
    """Say whether a framework is called so."""
    return name in FRAMEWORKS


def listed(words: tuple[str, ...], last: str = "or") -> str:
    """Return words as a sentence has them: `a, b or c`."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


NAMES = listed(tuple(FRAMEWORKS))
