"""One rank of a sum over all ranks of a job, by the collectives of torch.distributed; see `sums.py` of the check."""

from __future__ import annotations

import datetime
import json
import sys
import time
from typing import Any, Dict

BACKENDS = {"cpu": ("cpu", "gloo"), "npu": ("npu", "hccl"), "xpu": ("xpu", "xccl")}


def main() -> None:
    """Add up, and print what came of it."""
    task: Dict[str, Any] = json.load(sys.stdin)
    import torch  # type: ignore[import-not-found,unused-ignore]
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

    name, backend = BACKENDS.get(task["kind"], ("cuda", "nccl"))
    if name == "npu":
        __import__("torch_npu")
    device = name if name == "cpu" else "%s:%d" % (name, task["local"])
    if name != "cpu":
        getattr(torch, name).set_device(device)
    meeting = "tcp://%s:%d" % (task["address"], task["port"])
    patience = datetime.timedelta(seconds=task["seconds"])
    dist.init_process_group(backend, meeting, timeout=patience, rank=task["rank"], world_size=task["count"])
    mine = torch.tensor(task["pattern"], dtype=torch.float32, device=device) * task["factor"]
    begin = time.monotonic()
    dist.all_reduce(mine)
    found = mine.cpu().tolist()
    sys.stdout.write(json.dumps({"backend": backend, "sum": found, "seconds": time.monotonic() - begin}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
