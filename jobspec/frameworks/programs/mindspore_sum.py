"""One rank of a sum over all ranks of a job, by the collectives of MindSpore; see `sums.py` of the check.

The first rank starts the scheduler, at which all meet: a process of its own, which needs no device.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any, Dict

NAMES = {"cpu": ("CPU", "mccl"), "gpu": ("GPU", "nccl"), "npu": ("Ascend", "hccl")}


def schedule() -> int:
    """Start the scheduler; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(2, 1)
        os.environ["MS_ROLE"] = "MS_SCHED"
        from mindspore.communication import init  # type: ignore[import-not-found,unused-ignore]

        init("mccl")
    finally:
        os._exit(0)


def add_up(task: Dict[str, Any]) -> None:
    """Add up, and print what came of it."""
    import mindspore as ms  # type: ignore[import-not-found,unused-ignore]
    from mindspore import ops  # type: ignore[import-not-found,unused-ignore]
    from mindspore.communication import init  # type: ignore[import-not-found,unused-ignore]

    device, backend = NAMES[task["kind"]]
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(device)
    init(backend)
    mine = ms.Tensor([value * task["factor"] for value in task["pattern"]], ms.float32)
    begin = time.monotonic()
    found = ops.AllReduce()(mine).asnumpy().tolist()
    sys.stdout.write(json.dumps({"backend": backend, "sum": found, "seconds": time.monotonic() - begin}) + "\n")
    sys.stdout.flush()
    ops.AllReduce()(mine).asnumpy()  # whoever has this has let all others print


def main() -> None:
    """Take part as one rank."""
    task: Dict[str, Any] = json.load(sys.stdin)
    os.environ.update(
        MS_WORKER_NUM=str(task["count"]),
        MS_SCHED_HOST=task["address"],
        MS_SCHED_PORT=str(task["port"]),
        MS_NODE_ID=str(task["rank"]),
        MS_ROLE="MS_WORKER",
        MS_WORKER_IP=task["own"],
        MS_TOPO_TIMEOUT=str(int(task["seconds"])),
        DEVICE_ID=str(task["local"]),
    )
    scheduler = schedule() if task["rank"] == 0 else None
    try:
        add_up(task)
    finally:
        if scheduler is not None:
            os.kill(scheduler, signal.SIGKILL)
    sys.stdout.flush()
    os._exit(0)  # else each would try for half a minute to tell the scheduler that it leaves


if __name__ == "__main__":
    main()
