"""One rank of a sum over all ranks of a job, by the collectives of paddle.distributed; see `sums.py` of the check."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict

NAMES = {"dcu": "gpu"}


def main() -> None:
    """Add up, and print what came of it."""
    task: Dict[str, Any] = json.load(sys.stdin)
    kind = NAMES.get(task["kind"], task["kind"])
    meeting = "%s:%d" % (task["address"], task["port"])
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    # Of other ranks than the first nobody asks their ports; Paddle only counts the endpoints and finds its own among them.
    everyone = ["%s:%d" % (task["address"], task["port"] + rank) for rank in range(task["count"])]
    os.environ.update(
        PADDLE_MASTER=meeting,
        PADDLE_TRAINER_ID=str(task["rank"]),
        PADDLE_TRAINERS_NUM=str(task["count"]),
        PADDLE_TRAINER_ENDPOINTS=",".join(everyone),
        PADDLE_CURRENT_ENDPOINT=everyone[task["rank"]],
        PADDLE_RANK_IN_NODE=str(task["local"]),
    )
    if kind == "cpu":
        os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    elif kind == "npu":
        os.environ.update(
            PADDLE_DISTRI_BACKEND="xccl", PADDLE_XCCL_BACKEND="npu", FLAGS_selected_npus=str(task["local"])
        )
    else:
        os.environ["FLAGS_selected_%ss" % kind] = str(task["local"])
    import paddle  # type: ignore[import-not-found,unused-ignore]
    import paddle.distributed as dist  # type: ignore[import-not-found,unused-ignore]

    paddle.set_device("cpu" if kind == "cpu" else "%s:%d" % (kind, task["local"]))
    dist.init_parallel_env()
    mine = paddle.to_tensor(task["pattern"], dtype="float32") * task["factor"]
    begin = time.monotonic()
    dist.all_reduce(mine)
    found = mine.numpy().tolist()
    backend = {"cpu": "gloo", "gpu": "nccl", "xpu": "bkcl", "npu": "xccl"}.get(kind, kind)
    sys.stdout.write(json.dumps({"backend": backend, "sum": found, "seconds": time.monotonic() - begin}) + "\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
