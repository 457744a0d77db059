"""The parts of the language that are mappings of their own; field descriptions are the reference documentation."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

import re
from os.path import expanduser
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.base import Part, without_extensions
from jobctl.jobspec.spec.diagnostics import closest
from jobctl.jobspec.spec.names import ENV_NAME
from jobctl.jobspec.spec.parts.values import AbsolutePath, Endpoints, Port, Some, SomeTexts, Texts, VariableName
from jobctl.jobspec.spec.scalars import (
    MOST_DEVICES,
    MOST_NODES,
    Bool,
    Duration,
    Float,
    Form,
    Ids,
    Int,
    Size,
    Text,
    at_least,
    bad,
    positive,
)


class Nodes(Part):
    """How many nodes take part; a range makes the job elastic."""

    min: Annotated[Int, AfterValidator(at_least(1, "`nodes.min`", MOST_NODES))] = Field(
        description="The fewest nodes that the job trains with.", examples=[2]
    )
    max: Annotated[Int, AfterValidator(at_least(1, "`nodes.max`", MOST_NODES))] = Field(
        description="The most nodes that the job trains with.", examples=[4]
    )

    @property
    def elastic(self) -> bool:
        """Whether it is a range."""
        return self.min != self.max


class Devices(Part):
    """The devices of each node; one process runs per device."""

    kind: Literal["cpu", "gpu", "xpu", "dcu", "npu"] = Field(
        description="The kind of device. `xpu`: Kunlun, `dcu`: AMD and Hygon, `npu`: Ascend.", examples=["gpu"]
    )
    count: Annotated[Int, AfterValidator(at_least(1, "`devices.count`", MOST_DEVICES))] | None = Field(
        default=None,
        description="How many devices each node uses. Default: all devices of the host; 1 for `cpu`.",
        examples=[8],
    )
    ids: Ids | None = Field(
        default=None,
        description="Which devices each node uses, by their numbers on the host. Default: any `count` of them.",
        examples=["0-3,6"],
    )


class Ps(Part):
    """Mode `ps`: totals over the job, which jobctl deals out to the hosts in turn."""

    servers: Annotated[Int, AfterValidator(at_least(1, "`ps.servers`", MOST_NODES))] = Field(
        description="The number of servers in the job.", examples=[2]
    )
    trainers: Annotated[Int, AfterValidator(at_least(1, "`ps.trainers`", MOST_NODES))] = Field(
        description="The number of trainers in the job.", examples=[4]
    )
    gloo: Annotated[Int, AfterValidator(at_least(0, "`ps.gloo`")), Form("`0`, `1` or `2`")] = Field(
        default=0,
        json_schema_extra={"enum": [0, 1, 2]},
        description="Paddle's `with_gloo`: 0 for no barriers, 1 for barriers among trainers, 2 among servers too.",
        examples=[1],
    )
    sync: Bool = Field(
        default=False,
        description="Whether trainers depend on each other. If they do, all of them restart when one fails.",
        examples=[True],
    )


RENDEZVOUS_TIMEOUT = 600.0  # seconds


class Rendezvous(Part):
    """Where the processes of a generation meet."""

    port: Port | None = Field(
        default=None,
        description="The port of the first generation. Default: a free port, chosen for each generation.",
        examples=[29500],
    )
    timeout: Annotated[Duration, AfterValidator(positive("`rendezvous.timeout`"))] = Field(
        default=RENDEZVOUS_TIMEOUT,
        description="How long nodes wait for each other at the start of a generation. MindSpore uses it, and torchrun, which waits"
        " 15 minutes if this is the default. Under paddle-operator, trainers wait so long for servers. Otherwise Paddle's launcher"
        " waits for ever, and JAX as long as the script says.",
        examples=["30m"],
    )


class Tls(Part):
    """Certificates for etcd: paths on the host."""

    ca: Text | None = Field(
        default=None,
        description="The certificate of the authority that signed etcd's certificate.",
        examples=["/etc/etcd/ca.pem"],
    )
    cert: Text | None = Field(default=None, description="The client's certificate.", examples=["/etc/etcd/client.pem"])
    key: Text | None = Field(
        default=None, description="The client's private key.", examples=["/etc/etcd/client-key.pem"]
    )


class Managed(Part):
    """An etcd that jobctl starts and stops with the job."""

    replicas: Annotated[Int, Form("`1` or `3`")] = Field(
        default=1, json_schema_extra={"enum": [1, 3]}, description="How many members: 1 or 3.", examples=[3]
    )
    port: Port = Field(default=2379, description="The client port of each member.", examples=[2379])
    image: Text | None = Field(
        default=None,
        description="The image of the members. Default: `quay.io/coreos/etcd`, in a version that is known to work.",
        examples=["registry.example.com/etcd:v3.5.21"],
    )


class Etcd(Part):
    """An etcd that already runs (`endpoints`), or one that jobctl runs with the job (`managed`)."""

    endpoints: Endpoints | None = Field(
        default=None,
        description="The address of each member of an etcd that already runs, as `host:port`.",
        examples=[["10.0.0.7:2379"]],
    )
    tls: Tls | None = Field(
        default=None, description="Certificates, for an etcd that requires TLS.", examples=[{"ca": "/etc/etcd/ca.pem"}]
    )
    user: Text | None = Field(default=None, description="The user to authenticate as.", examples=["jobctl"])
    password: Text | None = Field(
        default=None, description="The name of the secret that holds the user's password.", examples=["ETCD_PASSWORD"]
    )
    managed: Managed | None = Field(
        default=None, description="Start an etcd with the job, and stop it with the job.", examples=[{"replicas": 3}]
    )


class Checkpoint(Part):
    """Where the script keeps its checkpoints. jobctl never deletes any."""

    dir: Annotated[Text, Form("string", {"type": "string", "pattern": "^/"})] = Field(
        description="The directory: the same absolute path on the host and in the container. The script finds it in `JOBCTL_CHECKPOINT_DIR`.",
        examples=["/mnt/shared/resnet"],
    )
    shared: Bool = Field(
        default=True,
        description="Whether all hosts see the same files there. If not, a node never moves to another host; on `kubernetes`, nothing keeps it from that.",
        examples=[False],
    )
    keep: Annotated[Int, AfterValidator(at_least(1, "`checkpoint.keep`"))] = Field(
        default=2,
        description="How many checkpoints the script should keep. The script finds the number in `JOBCTL_CHECKPOINT_KEEP`.",
        examples=[5],
    )
    per_job: Bool = Field(default=False, description="Use a subdirectory that is named after the job.", examples=[True])


class Volume(Part):
    """A mount, as in Compose. jobctl does not create a path that the host lacks."""

    kind: Literal["bind", "volume", "tmpfs"] = Field(
        default="bind",
        alias="type",
        description="What to mount: a path of the host, a named volume, or a file system in memory.",
        examples=["tmpfs"],
    )
    source: Text | None = Field(
        default=None,
        description="A path on the host, or the name of a volume. A `tmpfs` has none.",
        examples=["/data/imagenet"],
    )
    target: AbsolutePath = Field(description="The path in the container.", examples=["/data"])
    read_only: Bool = Field(default=False, description="Whether the container may only read it.", examples=[True])

    @model_validator(mode="after")
    def _has_its_source(self) -> Self:
        if self.kind == "bind" and not self.source:
            raise bad("missing-key", "a mount of type `bind` needs a `source`", "a path on the host")
        if self.kind == "tmpfs" and self.source is not None:
            raise bad("bad-value", "a `tmpfs` has no `source`: it is empty at first", "leave it out")
        return self


class SecretSource(Part):
    """Where a secret is read from."""

    env: VariableName | None = Field(
        default=None,
        description="The variable to read, of `up`'s environment, otherwise of `.env` beside the spec."
        " Default: the variable of the same name.",
        examples=["WANDB_API_KEY"],
    )
    file: Text | None = Field(
        default=None, description="A file to read instead, relative to the spec.", examples=["secrets/wandb.key"]
    )


class Secret(SecretSource):
    """A value that `up` reads. jobctl never writes it down, except into one file of mode 0600."""

    name: Annotated[
        Text, Field(pattern=f"^{ENV_NAME}$"), Form("string", {"type": "string", "pattern": f"^{ENV_NAME}$"})
    ] = Field(
        description="The variable that processes get. In the mapping form, this is the key.", examples=["WANDB_API_KEY"]
    )

    @model_validator(mode="before")
    @classmethod
    def _no_value(cls, value: Any) -> Any:
        if isinstance(value, str):
            hint = "write its name alone, or in a mapping `NAME: {env: VARIABLE}` or `NAME: {file: PATH}`, where `up` finds it"
            raise bad("secret-in-spec", "a secret itself is here, where everybody who sees the spec sees it", hint)
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.env is not None and self.file is not None:
            raise bad("two-sources", f"secret `{self.name}` has both `env` and `file`", "keep one")
        return self


class Code(Part):
    """The code to send to every host, which is also the working directory."""

    source: Annotated[Text, AfterValidator(expanduser)] = Field(
        description="The directory to send, relative to the spec. `up` and `run` refuse one that is not there.",
        examples=["src"],
    )
    target: AbsolutePath = Field(
        default="/workspace", description="Where it is mounted in the container, as a writable copy.", examples=["/app"]
    )
    exclude: Texts = Field(
        default=(), description="Patterns of files that are not sent.", examples=[["*.ipynb", "data/"]]
    )
    include: Texts = Field(
        default=(),
        exclude_if=lambda value: not value,
        description="Patterns of files that are sent although jobctl would leave them out, such as `.env` files.",
        examples=[[".env.train"]],
    )


class UlimitPart(Part):
    """A limit; `-1` for no limit."""

    soft: Annotated[Int, AfterValidator(at_least(-1, "a limit"))] = Field(
        description="The soft limit.", examples=[65535]
    )
    hard: Annotated[Int, AfterValidator(at_least(-1, "a limit"))] = Field(
        description="The hard limit.", examples=[65535]
    )

    @model_validator(mode="after")
    def _soft_is_within_hard(self) -> Self:
        if self.hard != -1 and not 0 <= self.soft <= self.hard:
            raise bad("bad-value", "the soft limit is above the hard one, which no engine allows")
        return self


Limit = Annotated[
    UlimitPart,
    BeforeValidator(short.ulimit, json_schema_input_type=Annotated[int, Field(ge=-1)] | UlimitPart),
    Form("integer (`-1` for no limit), or mapping"),
]


# What Docker calls those that Linux has.
_ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc"),
    *("rss", "rtprio", "rttime", "sigpending", "stack"),
)


def _ulimit(name: str) -> str:
    if name not in _ULIMITS:
        raise bad("bad-value", f"`{name}` is not the name of a limit", closest(name, _ULIMITS) or ", ".join(_ULIMITS))
    return name


class Resources(Part):
    """Limits of each container."""

    shm_size: Annotated[Size, AfterValidator(positive("`resources.shm_size`"))] | None = Field(
        default=None,
        description="The most that `/dev/shm` may hold. Default: `64g` on hosts, no limit in a cluster.",
        examples=["16g"],
    )
    memory: Annotated[Size, AfterValidator(positive("`resources.memory`"))] | None = Field(
        default=None, description="The most memory that each container may use. Default: no limit.", examples=["128g"]
    )
    cpus: Annotated[Float, AfterValidator(positive("`resources.cpus`"))] | None = Field(
        default=None, description="How many cores each container may use. Default: all.", examples=[16]
    )
    ulimits: dict[
        Annotated[str, AfterValidator(_ulimit), Form("string", {"pattern": f"^({'|'.join(_ULIMITS)})$"})], Limit
    ] = Field(
        default_factory=dict,
        description="Limits by name. Default: those of the engine; `memlock` is unlimited where devices or RDMA need it and the engine allows it, and `nice` lets a standby return to the usual priority.",
        examples=[{"nofile": 65535}],
    )

    @field_validator("ulimits", mode="before")
    @classmethod
    def _without_x(cls, value: Any) -> Any:
        return without_extensions(value)


class Network(Part):
    """The network that processes use."""

    interface: Text | None = Field(
        default=None,
        description="The interface that processes communicate over. Default: the interface that owns the node's address.",
        examples=["ib0"],
    )


def _user(value: str) -> str:
    if not re.fullmatch(r"self|root|[0-9]+(:[0-9]+)?", value):
        raise bad("bad-value", f"expected `self`, `root` or `UID:GID`, found `{value}`")
    return value


_USER = {"type": ["integer", "string"], "minimum": 0, "pattern": "^(self|root|[0-9]+(:[0-9]+)?)$"}


class ContainerOptions(Part):
    """How containers are started: an escape hatch for what has no key of its own."""

    user: Annotated[Text, AfterValidator(_user), Form("`self`, `root` or `UID:GID`", _USER)] | None = Field(
        default=None,
        description="The user that processes run as. `self`: the user who logs in to the host. Default: the image's user.",
        examples=["self"],
    )
    python: Some = Field(
        default="python3",
        description="The Python interpreter in the image, 3.8 or later.",
        examples=["/opt/conda/bin/python"],
    )
    runtime: Text | None = Field(
        default=None, description="The container runtime. Default: the engine's.", examples=["nvidia"]
    )
    devices: SomeTexts = Field(default=(), description="Device files to add.", examples=[["/dev/fuse"]])
    cap_add: SomeTexts = Field(default=(), description="Linux capabilities to add.", examples=[["SYS_PTRACE"]])
    options: Texts = Field(
        default=(),
        description="Further options of `docker run`, except those that jobctl sets itself, such as `--network`.",
        examples=[["--security-opt=seccomp=unconfined"]],
    )


# `count` of cpu is one process unless said otherwise; everything else is all of the host's.
def one_cpu(devices: Devices) -> Devices:
    """Return `devices` with the default count of `cpu`."""
    if devices.kind == "cpu" and devices.count is None and devices.ids is None:
        return devices.model_copy(update={"count": 1})
    return devices
