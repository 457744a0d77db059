"""The job spec: what a user wrote, validated, in one shape. Frozen."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again. Defaults are written
# as users would write them and validated with the rest: an instance here would build its model twice.

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.base import Part, without_extensions
from jobctl.jobspec.spec.fitness_mode import FitnessMode
from jobctl.jobspec.spec.frameworks import FrameworkName
from jobctl.jobspec.spec.names import ENV_NAME, NAME, is_name
from jobctl.jobspec.spec.parts.build import BuildOption
from jobctl.jobspec.spec.parts.data import Data
from jobctl.jobspec.spec.parts.frameworks import MindsporeOptions, PaddleOptions, TorchOptions
from jobctl.jobspec.spec.parts.kubernetes import Kubernetes
from jobctl.jobspec.spec.parts.notify import Notify
from jobctl.jobspec.spec.parts.parts import (
    Checkpoint,
    Code,
    ContainerOptions,
    Devices,
    Etcd,
    Network,
    Nodes,
    Ps,
    Rendezvous,
    Resources,
    Secret,
    SecretSource,
    Volume,
    one_cpu,
)
from jobctl.jobspec.spec.parts.recovery import Recovery
from jobctl.jobspec.spec.parts.slurm import Slurm
from jobctl.jobspec.spec.parts.values import Texts
from jobctl.jobspec.spec.scalars import MOST_NODES, Duration, Form, Int, Text, bad, expected

__all__ = ["Secret", "Spec"]


_NAME_HINT = "lower-case letters, digits and `-`; a letter first, no `-` last; at most 40 characters"


def _name(value: str) -> str:
    if not is_name(value):
        raise bad("bad-name", f"`{value}` is not a valid job name", _NAME_HINT)
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
    return without_extensions(value)


def _variable(name: str) -> str:
    if not re.fullmatch(ENV_NAME, name):
        raise bad(
            "bad-variable", f"`{name}` is not a valid name for a variable", "letters, digits and `_`, no digit first"
        )
    return name


def _output(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise bad("bad-output", f"`{path}` is not below the working directory", "outputs are relative paths")
    if not set(path.split("/")) - {"", "."}:
        what = f"`{path}` is the working directory itself" if path else "an output is empty"
        raise bad("bad-output", what, "name what is below it, such as `runs/`, or leave `outputs` out")
    return path


Output = Annotated[Text, AfterValidator(_output), Form("string", {"pattern": r"^(?!/)(?!(.*/)?\.\.(/|$))"})]
EnvName = Annotated[str, Field(pattern=f"^{ENV_NAME}$")]
# For JSON Schema, the short forms of these keys.
_NODES = {
    "type": ["integer", "string"],
    "minimum": 1,
    "maximum": MOST_NODES,
    "pattern": "^0*[1-9][0-9]{0,4}(:0*[1-9][0-9]{0,4})?$",
}
_DEVICES = r"^(cpu|gpu|xpu|dcu|npu)(:\+?[1-9][0-9]{0,3})?$"
_VOLUME = "^[^:]+:/[^:]*(:(ro|rw))?$"
_DATA = "^.+:/[^:]*$"


class Spec(Part):
    """A training job: what runs, on how many nodes, and what happens when something fails."""

    version: Annotated[Int, AfterValidator(_version), Form("`1`")] = Field(
        default=1, json_schema_extra={"enum": [1]}, description="The version of the spec's language.", examples=[1]
    )
    name: Annotated[
        Text, AfterValidator(_name), Form(f"string: {_NAME_HINT}", {"type": "string", "pattern": f"^{NAME}$"})
    ] = Field(
        description="The name of the job, unique on its hosts.",
        examples=["resnet"],
    )
    framework: FrameworkName = Field(description="The framework that the script uses.", examples=["torch"])
    mode: Literal["collective", "ps"] = Field(
        default="collective",
        description="`collective`: all processes train alike. `ps`: servers hold the parameters, trainers use them.",
        examples=["ps"],
    )
    image: Text | None = Field(
        default=None,
        description="The container image. Target `local` uses none; every other target needs it, or `build`.",
        examples=["registry.example.com/team/train:1.0"],
    )
    build: BuildOption | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="What to make the image from, on targets with hosts. Then `image` is its name; default: the job's.",
        examples=[{"context": ".", "dockerfile": "train.Dockerfile", "args": {"CUDA": "12.8"}}],
    )
    pull: Literal["missing", "always", "never"] = Field(
        default="missing",
        description="When hosts pull the image. `missing`: when no host of the job, nor this machine, has it.",
        examples=["always"],
    )
    script: Text | None = Field(
        default=None, description="The Python script that each process runs.", examples=["train.py"]
    )
    module: Text | None = Field(
        default=None,
        description="The Python module that each process runs, instead of a script.",
        examples=["team.train"],
    )
    command: tuple[Text, ...] | None = Field(
        default=None,
        description="The command to run instead of a Python script or module.",
        examples=[["bash", "train.sh"]],
    )
    args: tuple[Text, ...] = Field(
        default=(), description="Arguments of `script` or `module`.", examples=[["--epochs", "90"]]
    )
    per: Literal["process", "node"] = Field(
        default="process", description="Whether `command` runs for each process or once per node.", examples=["node"]
    )
    setup: Texts = Field(
        default=(),
        description="Shell commands that run once in each new container.",
        examples=["pip install -r requirements.txt"],
    )
    nodes: Annotated[
        Nodes,
        BeforeValidator(short.nodes, json_schema_input_type=Annotated[Any, WithJsonSchema(_NODES)] | Nodes),
        Form('integer, range such as `"2:4"`, or mapping'),
    ] = Field(
        default=1,
        validate_default=True,
        description="How many nodes take part. A range makes the job elastic.",
        examples=["2:4"],
    )
    devices: Annotated[
        Devices,
        BeforeValidator(
            short.devices,
            json_schema_input_type=Literal["cpu", "gpu", "xpu", "dcu", "npu"]
            | Annotated[str, Field(pattern=_DEVICES)]
            | Devices,
        ),
        AfterValidator(one_cpu),
        Form("`KIND`, `KIND:COUNT` or mapping"),
    ] = Field(
        default="cpu",
        validate_default=True,
        description="The devices of each node. One process runs per device.",
        examples=["gpu:8"],
    )
    ps: Ps | None = Field(
        default=None,
        description="The numbers of servers and trainers. Mode `ps` only.",
        examples=[{"servers": 2, "trainers": 4}],
    )
    rendezvous: Rendezvous = Field(
        default={}, validate_default=True, description="Where processes meet.", examples=[{"timeout": "15m"}]
    )
    etcd: Etcd | None = Field(
        default=None,
        description="An etcd that keeps leases and membership, so that a failed process recovers without the supervisor.",
        examples=[{"managed": {"replicas": 3}}],
    )
    checkpoint: (
        Annotated[
            Checkpoint,
            BeforeValidator(short.checkpoint, json_schema_input_type=Annotated[str, Field(pattern="^/")] | Checkpoint),
            Form("absolute path, or mapping"),
        ]
        | None
    ) = Field(default=None, description="Where the script keeps its checkpoints.", examples=["/mnt/shared/resnet"])
    recovery: Recovery = Field(
        default={},
        validate_default=True,
        description="What happens when something fails.",
        examples=[{"max_restarts": 10, "hang_timeout": "10m"}],
    )
    fitness: FitnessMode = Field(
        default="off",
        description="How thoroughly `up` measures hosts before the first generation. It leaves out those that are not fit.",
        examples=["quick"],
    )
    volumes: tuple[
        Annotated[
            Volume,
            BeforeValidator(short.volume, json_schema_input_type=Annotated[str, Field(pattern=_VOLUME)] | Volume),
            Form("`SOURCE:TARGET`, `SOURCE:TARGET:ro` or mapping"),
        ],
        ...,
    ] = Field(
        default=(),
        description="What to mount into each container, as in Compose.",
        examples=[["/data/imagenet:/data:ro"]],
    )
    outputs: Annotated[
        tuple[Output, ...],
        BeforeValidator(short.words, json_schema_input_type=Output | list[Output]),
        Form("string, or list of strings"),
    ] = Field(
        default=(), description="Paths below the working directory that `pull` and `down` fetch.", examples=[["runs/"]]
    )
    env: Annotated[
        dict[Annotated[str, AfterValidator(_variable)], Text],
        BeforeValidator(_env, json_schema_input_type=dict[EnvName, Text | None] | None),
        Form("mapping; each value: string or nothing"),
    ] = Field(
        default_factory=dict,
        description="Variables of every process. A variable without a value takes its value from `up`'s environment.",
        examples=[{"NCCL_DEBUG": "WARN"}],
    )
    env_file: Texts = Field(
        default=(),
        description="Files of variables, as Compose reads them, relative to the spec. `env` and `secrets` override them. `up` and `run`"
        " refuse one that is not there; elsewhere it is a warning.",
        examples=[["train.env"]],
    )
    secrets: Annotated[
        tuple[Secret, ...],
        BeforeValidator(
            short.secrets, json_schema_input_type=list[EnvName | Secret] | dict[EnvName, SecretSource | None]
        ),
        Form("list of names, or mapping of names to `env` or `file`"),
    ] = Field(
        default=(),
        description="Variables whose values jobctl never writes down, except into one file of mode 0600.",
        examples=[["WANDB_API_KEY"]],
    )
    code: (
        Annotated[Code, BeforeValidator(short.code, json_schema_input_type=Text | Code), Form("path, or mapping")]
        | None
    ) = Field(
        default=None, description="The code to send to every host, which is also the working directory.", examples=["."]
    )
    data: tuple[
        Annotated[
            Data,
            BeforeValidator(short.dataset, json_schema_input_type=Annotated[str, Field(pattern=_DATA)] | Data),
            Form("`SOURCE:TARGET` or mapping"),
        ],
        ...,
    ] = Field(
        default=(),
        exclude_if=lambda value: not value,
        description="Folders to send to every host, which keeps them between jobs.",
        examples=[["/data/imagenet:/data"]],
    )
    resources: Resources = Field(
        default={}, validate_default=True, description="Limits of each container.", examples=[{"shm_size": "16g"}]
    )
    network: Network = Field(
        default={},
        validate_default=True,
        description="The network that processes use.",
        examples=[{"interface": "ib0"}],
    )
    container: ContainerOptions = Field(
        default={}, validate_default=True, description="How containers are started.", examples=[{"runtime": "nvidia"}]
    )
    stop_grace_period: Duration = Field(
        default=45.0, description="How long processes get to end after SIGTERM, before SIGKILL.", examples=["2m"]
    )
    torch: TorchOptions | None = Field(
        default=None, description="Options for `framework: torch`.", examples=[{"torchrun": ["--numa-binding", "node"]}]
    )
    paddle: PaddleOptions | None = Field(
        default=None, description="Options for `framework: paddle`.", examples=[{"launcher": "legacy"}]
    )
    mindspore: MindsporeOptions | None = Field(
        default=None, description="Options for `framework: mindspore`.", examples=[{"launcher": "msrun"}]
    )
    kubernetes: Kubernetes | None = Field(
        default=None,
        description="Options for target `kubernetes`.",
        examples=[{"operator": "kubeflow", "namespace": "research"}],
    )
    slurm: Slurm | None = Field(
        default=None,
        description="Options for target `slurm`.",
        examples=[{"partition": "gpu", "time": "12h", "spares": 1}],
    )
    notify: tuple[Notify, ...] | None = Field(
        default=None,
        description="Whom jobctl tells when something happens to the job. Default: as in `~/.config/jobctl/config.yaml`.",
        examples=[[{"on": ["failed", "waiting"], "webhook": "SLACK_URL", "format": "slack"}]],
    )

    @field_validator("script", "module")
    @classmethod
    def _or_none(cls, value: str | None) -> str | None:
        """Return None for no text: a variable that is not set leaves it to the other keys what runs."""
        return value or None


# Keys of `recovery`, the values that a spec has for words of users, and the words.
_WORDS: tuple[tuple[str, Any, str], ...] = (
    ("standby", None, "off"),
    ("standby", {"import": None}, "auto"),
    ("hang_timeout", None, "off"),
    ("hang_timeout", 0.0, "auto"),
)


def spec_recorded(values: Mapping[str, Any]) -> Spec:
    """Return the spec that `model_dump` made `values` of: keys are there by the fields' own names, which users do not know.

    Raises ValidationError of pydantic for what another version wrote.
    """
    return Spec.model_validate(_with_words(values), by_alias=True, by_name=True)


def as_written(spec: Spec) -> Mapping[str, Any]:
    """Return a spec as JSON has it, with keys and words that users know; `spec_recorded` takes it, too."""
    return _with_words(spec.model_dump(mode="json", by_alias=True))


def _with_words(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `model_dump` made of a spec, with words where the values that stand for them would mean something else."""
    recovery = values.get("recovery")
    if not isinstance(recovery, Mapping):
        return values
    words = {key: word for key, value, word in _WORDS if recovery.get(key, "") == value}
    return {**values, "recovery": {**recovery, **words}}
