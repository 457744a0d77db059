"""What a partition cannot give a job, in the texts of Slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.partitions import chosen_partition, partition_findings
from jobctl.jobspec.deploy.slurm.preflight import preflight
from jobctl.jobspec.spec.hosts import Host
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


def found(
    nodes: object, slurm: str, said: str = "", partition: str | None = None, qos: str | None = None
) -> list[tuple[str, str | None, str]]:
    """Return verdict, code and message of what is found."""
    chosen = chosen_partition(SHOWN, partition)
    assert chosen is not None
    plan = planned(SPEC.format(nodes=nodes, slurm=slurm), "slurm")
    return [(one.verdict, one.code, one.message) for one in partition_findings("login", plan, chosen, said, qos)]


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


def test_a_qos_may_allow_more_than_the_partition() -> None:
    """Its flags PartitionMaxNodes and PartitionTimeLimit say so, and only its administrators know whether it has them."""
    (nodes,) = (one for one in found(3, "spares: 0", partition="brief", qos="long") if one[1] == "slurm-nodes")
    assert nodes[0] == "warning"
    assert nodes[2].endswith("(`nodes` and `slurm.spares`); it waits unless QOS `long` allows more")
    assert [one[0] for one in found(2, "time: 25h", partition="brief", qos="long")] == ["warning", "warning"]
    assert found(4, "spares: 1", qos="long")[0][0] == "error"  # there are no five nodes


@pytest.mark.parametrize(
    ("slurm", "variable", "partition", "qos"),
    [
        ("partition: all", "brief", "all", None),
        ("spares: 0", "brief", "brief", None),
        ("partition: all, options: ['--partition=brief', '-qlong']", "nope", "brief", "long"),
        ("options: ['-pbrief'], qos: high", "nope", "brief", "high"),
    ],
)
def test_the_partition_is_the_one_that_sbatch_takes(
    slurm: str, variable: str, partition: str, qos: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an option of the spec, or by the user's variable: a job was refused since another partition has fewer nodes."""
    tools = {"scontrol": f"cat <<'E'\n{SHOWN}E", "sinfo": f'echo "$*" > {tmp_path}/asked', "sbatch": "cat > /dev/null"}
    for name in ("squeue", "scancel"):
        tools[name] = "exit 0"
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SBATCH_PARTITION", variable)
    plan = planned(SPEC.format(nodes=3, slurm=slurm).replace("/shared/jobs", str(tmp_path)), "slurm")
    login = LoginNode(Inventory((Host("localhost"),)), "tiny", f"{tmp_path}/.jobctl/tiny")
    told = [one for one in preflight(login, plan) if one.code == "slurm-nodes"]
    assert f"--partition={partition} " in (tmp_path / "asked").read_text()
    verdict = "warning" if qos else "error"
    assert [one.verdict for one in told] == ([verdict] if partition == "brief" else [])
    assert all(f"QOS `{qos}`" in one.message for one in told if qos)


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
