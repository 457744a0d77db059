"""Commands that start the nodes of one job, each on its host: which nodes are one job, and in which order hosts come."""

from __future__ import annotations

import pytest

from jobctl.jobspec.importers.draft import Found
from jobctl.jobspec.importers.jobs import ImportContext, import_text

TORCHRUN = "torchrun --nnodes 2 --master_addr n1 --nproc_per_node 8"


def imported(script: str) -> Found:
    return import_text(script, ImportContext("/work", "work", {}.get))


def hosts(job: Found) -> list[str]:
    return [host.name for host in job.hosts]


@pytest.mark.parametrize(
    ("command", "note"),
    [
        (f"docker run --name tr$i lab/torch:1 {TORCHRUN} --node_rank $((i-1)) train.py", None),
        (f'"NCCL_SOCKET_IFNAME=eth$i {TORCHRUN} --node_rank $((i-1)) train.py"', "network.interface"),
        (f'"CUDA_VISIBLE_DEVICES=$((2*i)),$((2*i+1)) {TORCHRUN} --node_rank $((i-1)) train.py"', "devices.ids"),
        (f"{TORCHRUN} --node_rank $((i-1)) train.py --data /data/$i", "args"),
        (f"{TORCHRUN} train.py --data /data/$i", "args"),  # no ranks, but other hosts
        (f'"A=$i B=1 {TORCHRUN} --node_rank $((i-1)) train.py"', "env.A"),
    ],
)
def test_nodes_that_differ_are_one_job(command: str, note: str | None) -> None:
    command = command.replace("--nproc_per_node 8", "--nproc_per_node 2" if "CUDA" in command else "--nproc_per_node 8")
    job = imported(f"for i in 1 2; do ssh n$i {command} & done\n")
    assert (hosts(job), job.missing) == (["n1", "n2"], 0)
    told = f"check: {note}: not the same on all nodes; what the first has is taken for all"
    assert [text for text in job.notes if "A, B" not in text] == ([told] if note else [])


@pytest.mark.parametrize(
    "script",
    [
        "torchrun train.py --lr 1\ntorchrun train.py --lr 2\n",  # there is no second node
        f"{TORCHRUN} --node_rank 0 train.py --lr 1\n{TORCHRUN} --node_rank 0 train.py --lr 2\n",  # one node, twice
        f"for i in 1 2 3; do ssh n$i {TORCHRUN} train.py --lr $i; done\n",  # more commands than nodes
        f"ssh n1 {TORCHRUN} --node_rank 0 train.py\nssh n2 {TORCHRUN} --node_rank 1 other.py\n",
    ],
)
def test_commands_of_other_jobs_are_noted(script: str) -> None:
    assert [note for note in imported(script).notes if "a second job" in note]


TOLD = "MASTER_ADDR=n1 MASTER_PORT=1 WORLD_SIZE=3"
RANK_0 = f"{TORCHRUN} --nnodes 3 --node_rank 0 train.py"


@pytest.mark.parametrize(
    ("numbers", "command", "last"),
    [
        ("2 3", f"{TORCHRUN} --nnodes 3 --node_rank $((i-1)) train.py", f"ssh n1 {RANK_0}"),
        ("2 3", f"{TORCHRUN} --nnodes 3 --node_rank $((i-1)) train.py", RANK_0),  # on this machine, which is n1
        ("3 2", f"{TORCHRUN} --nnodes 3 --node_rank $((i-1)) train.py", ""),  # n1 is started elsewhere
        ("3 2 1", "fleetrun --master n1:90 --nnodes 3 --rank $((i-1)) --gpus 0 train.py", ""),
        ("3 2 1", "msrun --worker_num 3 --local_worker_num 1 --master_addr n1 --node_rank $((i-1)) train.py", ""),
        ("3 2 1", f"{TOLD} RANK=$((i-1)) python train.py", ""),
        ("3 2", f"{TOLD} RANK=$((i-1)) python train.py", f"{TOLD} RANK=0 python train.py"),
        ("3 2", f"{TOLD} RANK=$((i-1)) python train.py", ""),
    ],
)
def test_hosts_are_in_the_order_of_ranks(numbers: str, command: str, last: str) -> None:
    """Scripts start the workers in the background first, and rank 0 last."""
    assert hosts(imported(f"for i in {numbers}; do ssh n$i {command} & done\n{last}\n")) == ["n1", "n2", "n3"]


def test_hosts_without_known_ranks_stay_in_order() -> None:
    job = imported("for h in b a; do ssh $h torchrun --nnodes 2 --node_rank $RANK --nproc_per_node 1 train.py; done\n")
    assert hosts(job) == ["b", "a"]


def test_the_job_is_what_its_first_node_runs() -> None:
    nodes = (f"ssh n{i + 1} {TORCHRUN} --node_rank {i} train.py --data d{i}" for i in (1, 0))
    assert imported("\n".join(nodes)).fields["args"] == ("--data", "d0")
