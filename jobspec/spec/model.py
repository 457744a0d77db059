"""The job spec: what a user wrote, validated, in one shape. Frozen."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again. Defaults are written
# as users would write them and validated with the rest: an instance here would build its model twice.

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from jobctl.jobspec.spec import short
from jobctl.jobspec.spec.kubernetes_part import Kubernetes
from jobctl.jobspec.spec.names import NAME, is_name
from jobctl.jobspec.spec.part import Part
from jobctl.jobspec.spec.parts import (
    ENV_NAME,
    Checkpoint,
    Code,
    ContainerOptions,
    Devices,
    Etcd,
    MindsporeOptions,
    Network,
    Nodes,
    PaddleOptions,
    Ps,
    Recovery,
    Rendezvous,
    Resources,
    Secret,
    SecretSource,
    Texts,
    TorchOptions,
    Volume,
    one_cpu,
)
from jobctl.jobspec.spec.scalars import AnyText, Duration, Int, Text, bad, expected

__all__ = ["Secret", "Spec"]


def _name(value: str) -> str:
    if not is_name(value):
        hint = "lower-case letters, digits and `-`; a letter first, no `-` last; at most 40 characters"
        raise bad("bad-name", f"`{value}` is no name for a job", hint)
    return value


def _version(value: int) -> int:
    if value != 1:
        raise bad("bad-version", f"version {value} of the language is not known", "this jobctl knows version 1")
    return value


def _env(value: object) -> object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise expected("a mapping of variables", value, "write `NAME: value` lines")
    return {name: item for name, item in value.items() if not name.startswith("x-")}


def _variable(name: str) -> str:
    if not re.fullmatch(ENV_NAME, name):
        raise bad("bad-variable", f"`{name}` is no name of a variable", "letters, digits and `_`, no digit first")
    return name


def _output(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise bad("bad-output", f"`{path}` is not below the working directory", "outputs are relative paths")
    return path


class Spec(Part):
    """A training job: what runs, on how many nodes, and what happens when something fails."""

    version: Annotated[Int, AfterValidator(_version)] = Field(default=1, description="Version of this language.")
    name: Annotated[Text, AfterValidator(_name)] = Field(
        description="The job's id, unique on its hosts.", json_schema_extra={"pattern": f"^{NAME}$"}
    )
    framework: Literal["torch", "paddle", "mindspore"] = Field(description="What the script is written for.")
    mode: Literal["collective", "ps"] = Field(default="collective", description="Collective, or parameter servers.")
    image: Text | None = Field(default=None, description="The container image; not needed on target `local`.")
    pull: Literal["missing", "always", "never"] = Field(default="missing", description="When the image is pulled.")
    script: Text | None = Field(default=None, description="The Python script that each process runs.")
    module: Text | None = Field(default=None, description="The Python module that each process runs.")
    command: tuple[AnyText, ...] | None = Field(default=None, description="The command that is run instead of Python.")
    args: tuple[AnyText, ...] = Field(default=(), description="Arguments of `script` or `module`.")
    per: Literal["process", "node"] = Field(
        default="process", description="Run `command` for each process, or once per node."
    )
    setup: Texts = Field(default=(), description="Shell commands run once in each new container.")
    nodes: Annotated[Nodes, BeforeValidator(short.nodes, json_schema_input_type=int | str | Nodes)] = Field(
        default=1, validate_default=True, description='How many nodes: `4`, or `"2:4"` for an elastic job.'
    )
    devices: Annotated[
        Devices, BeforeValidator(short.devices, json_schema_input_type=str | Devices), AfterValidator(one_cpu)
    ] = Field(default="cpu", validate_default=True, description="The devices of each node: `cpu:4`, `gpu`, `gpu:8`.")
    ps: Ps | None = Field(default=None, description="Servers and trainers; mode `ps` only.")
    rendezvous: Rendezvous = Field(default={}, validate_default=True, description="Where processes meet.")
    etcd: Etcd | None = Field(default=None, description="An etcd for leases and membership.")
    checkpoint: (
        Annotated[Checkpoint, BeforeValidator(short.checkpoint, json_schema_input_type=str | Checkpoint)] | None
    ) = Field(default=None, description="Where checkpoints are kept.")
    recovery: Recovery = Field(default={}, validate_default=True, description="What happens when something fails.")
    volumes: tuple[Annotated[Volume, BeforeValidator(short.volume, json_schema_input_type=str | Volume)], ...] = Field(
        default=(), description="Mounts: `/data:/data:ro`."
    )
    outputs: Annotated[
        tuple[Annotated[AnyText, AfterValidator(_output)], ...],
        BeforeValidator(short.words, json_schema_input_type=str | list[str]),
    ] = Field(default=(), description="Paths below the working directory that `pull` and `down` fetch.")
    env: Annotated[
        dict[Annotated[str, AfterValidator(_variable)], AnyText],
        BeforeValidator(_env, json_schema_input_type=dict[str, str | int | float | bool | None]),
    ] = Field(
        default_factory=dict, description="Variables of every process; without a value: as in `up`'s environment."
    )
    env_file: Texts = Field(default=(), description="Files of variables, relative to the spec; `env` wins.")
    secrets: Annotated[
        tuple[Secret, ...],
        BeforeValidator(short.secrets, json_schema_input_type=list[str] | dict[str, SecretSource | None]),
    ] = Field(default=(), description="Variables whose values are never written down.")
    code: Annotated[Code, BeforeValidator(short.code, json_schema_input_type=str | Code)] | None = Field(
        default=None, description="The code to send: `.`."
    )
    resources: Resources = Field(default={}, validate_default=True, description="Limits of each container.")
    network: Network = Field(default={}, validate_default=True, description="Which network the processes use.")
    container: ContainerOptions = Field(default={}, validate_default=True, description="How containers are started.")
    stop_grace_period: Duration = Field(default=45.0, description="How long processes get between SIGTERM and SIGKILL.")
    torch: TorchOptions | None = Field(default=None, description="Options of PyTorch only.")
    paddle: PaddleOptions | None = Field(default=None, description="Options of PaddlePaddle only.")
    mindspore: MindsporeOptions | None = Field(default=None, description="Options of MindSpore only.")
    kubernetes: Kubernetes | None = Field(default=None, description="Target `kubernetes` only.")
