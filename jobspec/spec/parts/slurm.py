"""The block `slurm`: how a job is submitted, and what its allocation has."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from jobctl.jobspec.spec.base import Part
from jobctl.jobspec.spec.parts.values import ABSOLUTE, Texts
from jobctl.jobspec.spec.scalars import Bool, Duration, Form, Int, Text, at_least, bad, positive

LONGEST_LOGIN = 253
_LOGIN = r"([^\s@:/-][^\s@:/]*@)?[^\s@:/-][^\s@:/]*"


def _login(value: str) -> str:
    if len(value) > LONGEST_LOGIN or not re.fullmatch(_LOGIN, value):
        raise bad("bad-value", f"`{value}` is not a login node", "write `HOST` or `USER@HOST`, as for `ssh`")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/") or "\n" in value:
        raise bad(
            "bad-value", f"`{value}` is not an absolute path", "name a directory that all nodes see: `/shared/jobs`"
        )
    return value


def _one_line(value: str) -> str:
    if not value or not value.isprintable():
        raise bad("bad-value", "a value of Slurm is one line, and not empty")
    return value


Word = Annotated[Text, AfterValidator(_one_line), Form("string", {"pattern": r"^[^\n\t]+$"})]


class Slurm(Part):
    """Options for target `slurm`."""

    login: (
        Annotated[
            Text,
            AfterValidator(_login),
            Form("`[USER@]HOST`", {"minimum": 0, "pattern": f"^(?=.{{1,{LONGEST_LOGIN}}}$){_LOGIN}$"}),
        ]
        | None
    ) = Field(
        default=None,
        description="The login node, reached over SSH. Default: this machine, which then has Slurm's commands.",
        examples=["ml@login.cluster"],
    )
    directory: Annotated[Text, AfterValidator(_absolute), ABSOLUTE] | None = Field(
        default=None,
        description="A directory that all nodes see. The job's files are in `.jobctl/NAME` below it. Default: the spec's folder.",
        examples=["/shared/jobs"],
    )
    spares: Annotated[Int, AfterValidator(at_least(0, "`slurm.spares`"))] = Field(
        default=0,
        description="How many more nodes the allocation has. One of them takes the place of a node that is lost.",
        examples=[1],
    )
    container: Literal["none", "podman", "docker", "apptainer", "enroot"] = Field(
        default="none",
        description="What starts a container of `image` on each node. `none` runs the processes on the nodes themselves.",
        examples=["podman"],
    )
    python: Word = Field(
        default="python3",
        description="The Python of the nodes, 3.8 or later, that runs jobctl's own program there.",
        examples=["/opt/python3.11/bin/python3"],
    )
    partition: Word | None = Field(
        default=None, description="The partition (`--partition`). Default: the cluster's.", examples=["gpu"]
    )
    account: Word | None = Field(
        default=None, description="The account (`--account`). Default: yours.", examples=["vision"]
    )
    qos: Word | None = Field(
        default=None, description="The quality of service (`--qos`). Default: the account's.", examples=["high"]
    )
    time: Annotated[Duration, AfterValidator(positive("`slurm.time`"))] | None = Field(
        default=None,
        description="The time limit (`--time`). Default: `recovery.max_duration`, or the partition's.",
        examples=["12h"],
    )
    constraint: Word | None = Field(
        default=None, description="The features that nodes need (`--constraint`).", examples=["a100&ib"]
    )
    reservation: Word | None = Field(
        default=None, description="The reservation (`--reservation`).", examples=["maintenance-test"]
    )
    gres: Word | None = Field(
        default=None,
        description="The generic resources of each node (`--gres`). Default: as many as `devices` says.",
        examples=["gpu:a100:8"],
    )
    exclusive: Bool = Field(
        default=True, description="Whether no other job runs on the nodes (`--exclusive`).", examples=[False]
    )
    mail: Word | None = Field(
        default=None,
        description="The address to which Slurm writes when the job ends or fails (`--mail-user`).",
        examples=["ml@example.com"],
    )
    options: Texts = Field(
        default=(), description="Further options of `sbatch`, as it takes them.", examples=[["--nice=100"]]
    )
    requeue: Literal["auto", "requeue", "chain", "off"] = Field(
        default="auto",
        description="What happens at the time limit and at preemption: `requeue` requeues the job, `chain` submits it again, `auto` does whichever is allowed, `off` ends it.",
        examples=["chain"],
    )
