"""The parts of the language that are mappings of their own; field descriptions are the reference documentation."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from jobctl.jobspec.spec import short
from jobctl.jobspec.spec.part import Part
from jobctl.jobspec.spec.scalars import (
    MOST_DEVICES,
    MOST_NODES,
    AnyText,
    Bool,
    Duration,
    Float,
    Ids,
    Int,
    Size,
    Text,
    at_least,
    bad,
    positive,
)

ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def _words(what: object) -> BeforeValidator:
    return BeforeValidator(short.words, json_schema_input_type=what)


Texts = Annotated[tuple[AnyText, ...], _words(str | list[str | int | float | bool])]


def _port(value: int) -> int:
    if not 1 <= value <= 65535:
        raise bad("out-of-range", f"a port is between 1 and 65535, not {value}")
    return value


Port = Annotated[Int, AfterValidator(_port)]


class Nodes(Part):
    """How many nodes take part; a range makes the job elastic."""

    min: Annotated[Int, AfterValidator(at_least(1, "`nodes.min`", MOST_NODES))] = Field(
        description="The fewest nodes that train."
    )
    max: Annotated[Int, AfterValidator(at_least(1, "`nodes.max`", MOST_NODES))] = Field(
        description="The most nodes that train."
    )


class Devices(Part):
    """The devices of each node; one process runs per device."""

    kind: Literal["cpu", "gpu", "xpu", "dcu", "npu"] = Field(description="What kind of device.")
    count: Annotated[Int, AfterValidator(at_least(1, "`devices.count`", MOST_DEVICES))] | None = Field(
        default=None, description="How many on each node; default all of the host's (`cpu`: 1)."
    )
    ids: Ids | None = Field(default=None, description='Which ones, by their numbers on the host: `"0-3,6"`.')


class Ps(Part):
    """Parameter-server mode: totals over the job, dealt round-robin over the hosts."""

    servers: Annotated[Int, AfterValidator(at_least(1, "`ps.servers`", MOST_NODES))] = Field(
        description="How many servers."
    )
    trainers: Annotated[Int, AfterValidator(at_least(1, "`ps.trainers`", MOST_NODES))] = Field(
        description="How many trainers."
    )
    gloo: Annotated[Int, AfterValidator(at_least(0, "`ps.gloo`"))] = Field(
        default=0, description="Paddle's with_gloo: 0 none, 1 trainers, 2 all."
    )
    sync: Bool = Field(default=False, description="Whether trainers depend on each other: then all restart together.")


class Rendezvous(Part):
    """Where the processes of a generation meet."""

    port: Port | None = Field(
        default=None, description="The first generation's port; default a free one, chosen for each generation."
    )
    timeout: Annotated[Duration, AfterValidator(positive("`rendezvous.timeout`"))] = Field(
        default=600.0, description="How long nodes wait for each other."
    )


class Tls(Part):
    """Certificates for etcd; paths on the host."""

    ca: Text | None = Field(default=None, description="The authority's certificate.")
    cert: Text | None = Field(default=None, description="The client's certificate.")
    key: Text | None = Field(default=None, description="The client's key.")


class Managed(Part):
    """An etcd that is started and stopped with the job."""

    replicas: Int = Field(default=1, description="How many members: 1 or 3.")
    port: Port = Field(default=2379, description="The client port of each member.")
    image: Text | None = Field(
        default=None,
        description="The image of the members; default `quay.io/coreos/etcd` of a version that is known to work.",
    )


class Etcd(Part):
    """An etcd that exists already (`endpoints`), or one that is `managed`."""

    endpoints: Texts | None = Field(default=None, description="`host:port` of each member.")
    tls: Tls | None = Field(default=None, description="Certificates.")
    user: Text | None = Field(default=None, description="The user to authenticate as.")
    password: Text | None = Field(default=None, description="The name of the secret that holds the password.")
    managed: Managed | None = Field(default=None, description="Start one with the job.")


class Checkpoint(Part):
    """Where the script keeps its checkpoints; jobctl never deletes any."""

    dir: Text = Field(description="The same absolute path on host and in container; `JOBCTL_CHECKPOINT_DIR`.")
    shared: Bool = Field(
        default=True, description="Whether all hosts see the same files; if not, nodes are never moved."
    )
    keep: Annotated[Int, AfterValidator(at_least(1, "`checkpoint.keep`"))] = Field(
        default=2, description="How many the script should keep: `JOBCTL_CHECKPOINT_KEEP`."
    )
    per_job: Bool = Field(default=False, description="Use a subdirectory named after the job.")


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise bad("bad-regex", f"`{value}` is no regular expression: {error}") from None
    return value


class Rule(Part):
    """What to do about a failure that matches; both `log` and `exit` must, where both are given."""

    log: Annotated[Text, AfterValidator(_regex)] | None = Field(
        default=None, description="A regular expression, searched in the last log lines."
    )
    exit: Int | None = Field(default=None, description="The exit code; 128 + n for signal n.")
    do: Literal["fail", "restart", "exclude_host"] = Field(description="What to do.")

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if self.log is None and self.exit is None:
            raise bad("empty-rule", "a rule needs `log` or `exit`")
        return self


HangTimeout = Annotated[
    float | None,
    BeforeValidator(short.hang_timeout, json_schema_input_type=Annotated[str, Field(pattern=r"^(off|auto|[0-9].*)$")]),
]


class Recovery(Part):
    """What happens when something fails."""

    max_restarts: Annotated[Int, AfterValidator(at_least(0, "`recovery.max_restarts`"))] = Field(
        default=3, description="How many generations may be begun because of failures."
    )
    window: Annotated[Duration, AfterValidator(positive("`recovery.window`"))] | None = Field(
        default=None, description="Count restarts over this long; default the whole run."
    )
    on_host_loss: Literal["replace", "shrink", "wait", "fail"] | None = Field(
        default=None,
        description="What to do without a host; default `replace` with spares, else `shrink` for a range, else `wait`.",
    )
    host_timeout: Annotated[Duration, AfterValidator(positive("`recovery.host_timeout`"))] = Field(
        default=30.0, description="After how long of silence a host counts as lost."
    )
    hang_timeout: HangTimeout = Field(
        default=None,
        description="After how long without progress processes are restarted: `off`, `auto` or a duration.",
    )
    wait_timeout: Annotated[Duration, AfterValidator(positive("`recovery.wait_timeout`"))] | None = Field(
        default=None, description="How long to wait for hosts; default for ever."
    )
    max_duration: Annotated[Duration, AfterValidator(positive("`recovery.max_duration`"))] | None = Field(
        default=None, description="How long the job may run; default for ever."
    )
    rules: tuple[Rule, ...] = Field(default=(), description="Exceptions, the first that matches counts.")


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise bad("relative-target", f"`{value}` is no absolute path in the container")
    return value


class Volume(Part):
    """A mount, as in Compose; nothing is created in its place."""

    kind: Literal["bind", "volume", "tmpfs"] = Field(default="bind", alias="type", description="What is mounted.")
    source: Text | None = Field(default=None, description="A path on the host, or a volume's name.")
    target: Annotated[Text, AfterValidator(_absolute)] = Field(description="Where, in the container.")
    read_only: Bool = Field(default=False, description="Whether it can be written.")


class SecretSource(Part):
    """Where a secret is read from."""

    env: Text | None = Field(default=None, description="The variable of `up`'s environment; default the same name.")
    file: Text | None = Field(default=None, description="A file that holds it.")


class Secret(SecretSource):
    """A value that is read at `up` and never written down but into one 0600 file."""

    name: Annotated[Text, Field(pattern=f"^{ENV_NAME}$")] = Field(description="The variable that processes get.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.env is not None and self.file is not None:
            raise bad("two-sources", f"secret `{self.name}` has both `env` and `file`", "keep one")
        return self


class Code(Part):
    """The code that is sent to every host, and the working directory."""

    source: Text = Field(description="A directory, relative to the spec.")
    target: Annotated[Text, AfterValidator(_absolute)] = Field(
        default="/workspace", description="Where it is mounted in the container, as a writable copy."
    )
    exclude: Texts = Field(default=(), description="Patterns of files that are not sent.")
    include: Texts = Field(
        default=(),
        exclude_if=lambda value: not value,
        description="Patterns of files to send even if they would be left out.",
    )


class UlimitPart(Part):
    """A limit, -1 for none."""

    soft: Int = Field(description="The soft limit.")
    hard: Int = Field(description="The hard limit.")


Limit = Annotated[UlimitPart, BeforeValidator(short.ulimit, json_schema_input_type=int | UlimitPart)]


class Resources(Part):
    """Limits of each container."""

    shm_size: Annotated[Size, AfterValidator(positive("`resources.shm_size`"))] | None = Field(
        default=None, description="A cap on /dev/shm, 64g unless set; a cluster's pods have none."
    )
    memory: Annotated[Size, AfterValidator(positive("`resources.memory`"))] | None = Field(
        default=None, description="A cap on memory."
    )
    cpus: Annotated[Float, AfterValidator(positive("`resources.cpus`"))] | None = Field(
        default=None, description="A cap on cores."
    )
    ulimits: dict[str, Limit] = Field(
        default_factory=dict,
        description="Limits by name; `memlock` is unlimited by default where devices or RDMA need it, if the engine may do that.",
    )


class Network(Part):
    """Which network the processes use."""

    interface: Text | None = Field(
        default=None, description="The interface's name; default the one that owns the node's address."
    )


def _user(value: str) -> str:
    if not re.fullmatch(r"self|root|\d+(:\d+)?", value):
        raise bad("bad-value", f"expected `self`, `root` or `UID:GID`, found `{value}`")
    return value


class ContainerOptions(Part):
    """The escape hatch: how containers are started."""

    user: Annotated[Text, AfterValidator(_user)] | None = Field(
        default=None, description="`self`, `root` or `UID:GID`."
    )
    python: Text = Field(default="python3", description="The interpreter in the image.")
    runtime: Text | None = Field(default=None, description="The container runtime, e.g. `nvidia`.")
    devices: Texts = Field(default=(), description="Further device nodes.")
    cap_add: Texts = Field(default=(), description="Further capabilities.")
    options: Texts = Field(default=(), description="Further options of `docker run`.")


class TorchOptions(Part):
    """Options of PyTorch only."""

    torchrun: Texts = Field(default=(), description="Further options of torchrun, e.g. `[--numa-binding, node]`.")
    rejoin: Bool = Field(
        default=False, description="Mode `ps`: trainers meet servers at `JOBCTL_SERVERS`, and may begin again alone."
    )


class PaddleOptions(Part):
    """Options of PaddlePaddle only."""

    launcher: Literal["launch", "legacy"] = Field(
        default="launch", description="`legacy` for images with old Paddle: no launcher of its own."
    )
    elastic_timeout: Duration | None = Field(
        default=None, description="How long Paddle waits for members, in whole seconds, rounded up."
    )


class MindsporeOptions(Part):
    """Options of MindSpore only."""

    launcher: Literal["roles", "msrun"] = Field(
        default="roles", description="Start the roles ourselves, or through msrun."
    )
    recovery: Literal["restart", "native"] = Field(
        default="restart",
        description="`native`: MindSpore's own disaster recovery (≤ 2.5, gpu, with a shared `checkpoint`).",
    )
    node_timeout: Duration | None = Field(
        default=None,
        description="MindSpore ends all workers when one has been silent for so long (MS_NODE_TIMEOUT); a year if not set.",
    )


# `count` of cpu is one process unless said otherwise; everything else is all of the host's.
def one_cpu(devices: Devices) -> Devices:
    """Return `devices` with the default count of `cpu`."""
    if devices.kind == "cpu" and devices.count is None and devices.ids is None:
        return devices.model_copy(update={"count": 1})
    return devices
