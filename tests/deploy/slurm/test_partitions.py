"""What a partition cannot give a job, in the texts of Slurm."""

from __future__ import annotations

import pytest

from jobctl.jobspec.deploy.slurm.partitions import chosen_partition, partition_findings
from tests.render.plans import planned

SHOWN = """\
PartitionName=all AllowGroups=ALL Default=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=s[1-4] State=UP TotalNodes=4
PartitionName=brief Default=NO MaxNodes=2 MaxTime=1-00:30:00 Nodes=s[1-4] State=DOWN TotalCPUs=32 TotalNodes=4
"""
DRAINED = "s1|drained|disk is full|since May\ns2|idle*|none\ns3|down*|Not responding\ns4|mixed|none\n"
SPEC = """\
name: tiny
framework: torch
image: img
script: train.py
nodes: {nodes}
slurm: {{directory: /shared/jobs, {slurm}}}
"""


def found(nodes: object, slurm: str, said: str = "", partition: str | None = None) -> list[tuple[str, str | None, str]]:
    """Return verdict, code and message of what is found."""
    chosen = chosen_partition(SHOWN, partition)
    assert chosen is not None
    plan = planned(SPEC.format(nodes=nodes, slurm=slurm), "slurm")
    return [(one.verdict, one.code, one.message) for one in partition_findings("login", plan, chosen, said)]


def test_the_partition_is_the_one_that_is_named_or_the_default() -> None:
    assert [getattr(chosen_partition(SHOWN, name), "name", None) for name in (None, "brief", "a,b", "nope")] == [
        *("all", "brief", None, None)
    ]
    assert chosen_partition("slurm_load_partitions: error", None) is None


def test_a_job_that_fits_is_told_nothing() -> None:
    assert found(3, "spares: 1, time: 99h") == []
    assert found("2:9", "spares: 0", DRAINED) == []  # of a range, Slurm gives what there is
    assert found(2, "spares: 0", DRAINED) == []


@pytest.mark.parametrize(
    ("nodes", "slurm", "partition", "message"),
    [
        (4, "spares: 1", None, "partition `all` has 4 nodes, and the job asks for 5 (`nodes` and `slurm.spares`)"),
        (
            *(3, "spares: 0", "brief"),
            "partition `brief` gives a job 2 nodes at most, and the job asks for 3 (`nodes` and `slurm.spares`)",
        ),
        (2, "time: 25h", "brief", "partition `brief` gives a job 1d30m at most, and `slurm.time` is 1d1h"),
    ],
)
def test_what_a_partition_never_gives_is_an_error(nodes: int, slurm: str, partition: str | None, message: str) -> None:
    told = [one for one in found(nodes, slurm, partition=partition) if one[0] == "error"]
    assert [one[2] for one in told] == [message]


def test_what_it_does_not_give_now_is_a_warning() -> None:
    assert found(1, "spares: 0", partition="brief") == [
        ("warning", "slurm-partition", "partition `brief` is down: the job waits")
    ]
    (drained,) = found(3, "spares: 0", DRAINED)
    assert drained[:2] == ("warning", "slurm-nodes")
    assert drained[2] == (
        "of the 4 nodes of partition `all`, 2 take no job now: s1 (disk is full|since May), s3 (Not responding); "
        "the job asks for 3 (`nodes` and `slurm.spares`), and waits"
    )
