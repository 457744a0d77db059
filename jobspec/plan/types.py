"""The Plan: every node, container, mount, variable and argument decided, and nothing left to guess.

Nothing after the planner reads the Spec. Frozen, deterministic and serialisable (`dumps`, `loads`).

No artefact holds another node's address, rank or port: an argument or a variable that depends on the generation (who takes
part, where they meet) is a `Slot`, a typed value that the launcher fills as it starts processes, never text in a user's.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from jobctl.jobspec.plan.recovery import Recovery
from jobctl.jobspec.plan.sent import Build, Code, Dataset, Sent
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.targets import TargetName

# Roles have ranks, nodes and processes of their own: what is counted below is counted within the node's role.
SlotName = Literal[
    "address",  # this node's own address
    "checkpoint_dir",  # where this run keeps its checkpoints
    "device",  # (of a process) the number of its own among those that the node sees
    "generation",
    "job_rank",  # (of a process) global, over all roles: trainers come first
    "job_size",  # processes of all roles
    "interface",  # the network interface that owns this node's address
    "etcd_job",  # an id for others' keys in etcd: the same as long as the job is up, and the beginning of no other's
    "etcd_member",  # host:port of a member of etcd that answers as the processes start: that of this node's host if it does
    "etcd_master",  # the same in the words of Paddle: etcd://HOST:PORT
    "endpoint",  # (of a process) address:port of its own
    "local_rank",  # (of a process)
    "log_dir",  # this node's log directory of this generation
    "master",  # address:port of the rendezvous
    "master_addr",
    "master_port",
    "nnodes",  # members of the generation
    "node_rank",  # this node's rank among the members
    "port",  # (of a process) its own
    "port_range",  # "first:last" of ports that no other node of the job uses, clear of the ephemeral range
    "process",  # (argv only) the prefix that runs one process under the launcher's care
    "process_script",  # (argv only) the same without the interpreter, for launchers that choose it themselves
    "rank",  # (of a process) global
    "rdzv_id",
    "run_id",
    "scratch",  # a folder in memory for what must not stay; removed with the generation
    "scheduler_address",
    "scheduler_port",
    "server_addresses",  # of all servers, with commas between
    "server_port",  # of the first server
    "servers",  # address:port of all servers, in the order of their ranks, with commas between
    "shared_scratch",  # a folder that all nodes see, below the checkpoint directory if any; removed with the generation
    "trainer_addresses",  # of all trainers' processes, with commas between
    "trainer_count",  # processes of that role
    "trainers",  # address:port of all trainers, likewise
    "world_size",  # processes over all members
]


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that only the generation knows; the launcher fills it."""

    slot: SlotName


Value: TypeAlias = str | Slot
Pairs: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class HostRef:
    """Where a node runs: the name in the hosts file and the address at which other nodes reach it."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a container. `source` is a host path (bind), a volume's name, or empty (tmpfs)."""

    kind: Literal["bind", "volume", "tmpfs"]
    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Devices:
    """The accelerators of one node; `ids` are indices on its host: none for `cpu`, None where nobody says how many it has."""

    kind: Literal["cpu", "gpu", "xpu", "dcu", "npu"]
    ids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Ulimit:
    """A resource limit of a container, -1 for unlimited. `optional`: its host may set another one, that its engine allows."""

    name: str
    soft: int
    hard: int
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates, as paths where the launcher runs."""

    ca: str | None
    cert: str | None
    key: str | None


@dataclass(frozen=True, slots=True)
class Etcd:
    """The etcd that holds the job's leases and its generation, below `prefix`.

    `endpoints` are `host:port`, `password` is the name of the secret that holds it.
    """

    endpoints: tuple[str, ...]
    prefix: str
    tls: Tls | None
    user: str | None
    password: str | None


@dataclass(frozen=True, slots=True)
class Standby:
    """What waits beside a generation for the next one to start: see launcher/standby/standby.py.

    `imports` are modules in groups, each of which is given to a script as a whole; `launcher` is the module of the
    framework's launcher, whose `main` takes its arguments. `off` is why there is none. `changing` are the variables that
    differ between generations or nodes, `meets` those with the address:port at which rank 0 listens, and with the rank.
    """

    imports: tuple[tuple[str, ...], ...]
    launcher: str
    off: str = ""
    changing: tuple[str, ...] = ()
    meets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """What the shared launcher of one node does, in its own terms (see launcher.py).

    `start` is the framework's own launcher, started once per node; where it is empty the launcher starts `nproc` processes
    of `command` itself. `command` is what the user wants to run, one process each. Durations are seconds; `hang_timeout` is
    None for never, 0 for automatic. Artefacts leave out defaults, so that a new version of jobctl makes the same ones.
    """

    node: int
    host: str  # a generation that has the node on another host is not for this launcher
    role: str
    nproc: int
    start: tuple[Value, ...]
    command: tuple[str, ...]
    env: tuple[tuple[str, Value], ...]
    log_name: str  # e.g. "workerlog": one file workerlog.N per process N of the node; with .log, of the only one
    devices: tuple[str, ...]  # of each local rank, e.g. "gpu:0"
    setup: tuple[str, ...]
    secrets: tuple[str, ...]
    workdir: str | None
    interface: str | None
    interface_env: tuple[str, ...]  # variables that get the interface's name; none that the spec's `env` has
    stop_grace: float
    hang_timeout: float | None
    etcd: Etcd | None = None
    rank_env: tuple[str, str] = ("RANK", "LOCAL_RANK")  # where a process finds its global and its local rank
    scrub: tuple[str, ...] = ()  # inherited variables that processes do not get; `PADDLE_*` means all that begin so
    kept: tuple[str, ...] = ()  # files of `scratch`, as patterns, that are kept with the logs
    process_env: tuple[tuple[str, Value], ...] = ()  # of processes that the launcher starts itself
    listens: bool = False  # whether each process gets a port of its own
    after: str = ""  # the role whose ports have to answer before these processes start
    until: str = ""  # the role with whose good end these processes end, well
    regroups: bool = False  # whether the framework's launchers restart processes and agree on members by themselves
    rejoin: int | None = None  # how often a process that failed may start again while all others go on; None: never
    # The port at which launchers hear each other where there never is a supervisor; None on hosts, where orders say it.
    peer_port: int | None = None
    lost: str = ""  # what a line of the framework's launcher looks like that can never go on (a regular expression)
    # What its lines look like that say that it waits for the others, and no more, and for how many seconds it may.
    stall: tuple[str, str, float] | None = None
    rejoin_within: float | None = None  # over how many seconds that is counted; None: over the generation
    rejoin_after: float = 0.0  # seconds after its end before which it is not
    apart: bool = False  # whether the framework's launcher gives each process a session of its own
    meets: bool = False  # whether the others meet at its process, which so has the port of the rendezvous
    one_port: bool = False  # whether the role's processes listen at the same port, where each has an address of its own
    elsewhere: tuple[str, ...] = ()  # variable and value of a process that it starts too, but that another node runs
    standby: Standby | None = None  # None where the framework, or the way in which it is started, has none
    spare: int = 0  # of how many nodes it becomes one, if it waits as node -1 until an order has one on its host
    tells: bool = False  # whether it tells people where nobody watches: by webhooks whose URLs may be on the hosts

    @property
    def has_secrets(self) -> bool:
        """Whether its host has a folder of secrets for it: values for processes, or URLs for itself."""
        return bool(self.secrets) or self.tells


@dataclass(frozen=True, slots=True)
class Container:
    """How a node's container is started; on `local` only `env` counts.

    Sizes are bytes, `cpus` is a number of cores. `options` are further arguments of `docker run`.
    """

    name: str
    image: str
    pull: Literal["missing", "always", "never"]
    hostname: str
    python: str
    user: str | None
    runtime: str | None
    env: Pairs
    labels: Pairs
    mounts: tuple[Mount, ...]
    devices: Devices
    extra_devices: tuple[str, ...]
    cap_add: tuple[str, ...]
    shm_size: int | None  # the cap on /dev/shm; None: as its engine, its cluster or its options say
    memory: int | None
    cpus: float | None
    ulimits: tuple[Ulimit, ...]
    options: tuple[str, ...]
    stop_grace: float
    restart: Literal["no", "on-failure", "unless-stopped"] = "no"


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the job: a container on a host, and the launcher inside it.

    `index` is -1 for one that waits on a spare host until it becomes a node of the job.
    """

    index: int
    role: str
    host: HostRef
    container: Container
    launch: Launch


@dataclass(frozen=True, slots=True)
class Service:
    """What the job needs beside its nodes: a container of its own, without the launcher. `name` is unique in the job.

    Its own directory on the host is at `data` inside; on `local` the variable `data_variable` says where that is.
    """

    name: str
    role: Literal["etcd"]
    host: HostRef
    container: Container
    command: tuple[str, ...]
    data: str
    data_variable: str
    port: int  # where it answers


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """`port` is the first generation's where the spec sets one; later ones are chosen per generation."""

    port: int | None
    timeout: float


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`dir` is absolute, the same on host and in container."""

    dir: str
    shared: bool
    keep: int


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that pods put up with; None for any."""

    key: str | None
    operator: str
    value: str | None
    effect: str | None


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How a Kubernetes cluster is asked to run the job. A field that is None is left to the cluster, or to the operator.

    `device` is the resource by which pods get devices, `gloo` Paddle's with_gloo in mode `ps`. `affinity`, `pod_security` and
    `security` are parts of a pod as the API has them; `token` is whether pods get one for the API server, `ttl` how many
    seconds an ended job stays.
    """

    operator: Literal["paddle-operator", "kubeflow", "trainer", "none"]
    namespace: str | None
    clean_pod_policy: str | None
    intranet: str | None
    queue: str | None
    priority_class: str | None
    service_account: str | None
    image_pull_secrets: tuple[str, ...]
    node_selector: Pairs
    tolerations: tuple[Toleration, ...]
    device: str
    resources: Pairs
    checkpoint_claim: str | None
    labels: Pairs
    annotations: Pairs
    gloo: int | None = None
    affinity: dict[str, Any] | None = None
    host_network: bool = False
    pod_security: dict[str, Any] | None = None
    security: dict[str, Any] | None = None
    token: bool | None = False
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """How Slurm is asked for an allocation. Slurm decides what is None.

    `work` is the job's own directory, which all nodes see, `login` the host to which jobctl connects (None: this machine).
    `time` is in seconds. `lines` are the options of sbatch that are passed on as they are.
    """

    login: str | None
    work: str
    workdir: str  # of the processes, where no code is sent
    spares: int
    container: Literal["none", "podman", "docker", "apptainer", "enroot"]
    python: str
    partition: str | None
    account: str | None
    qos: str | None
    time: float | None
    constraint: str | None
    reservation: str | None
    gres: str | None
    exclusive: bool
    mail: str | None
    options: tuple[str, ...]
    requeue: Literal["auto", "requeue", "chain", "off"]


@dataclass(frozen=True, slots=True)
class Need:
    """What the image has to have for a job, as `check` looks for it.

    `test` is Python that ends with a message (`sys.exit("…")`) where the image has not; `deep` ones take long. `code` is
    the finding's, `hint` what a user does about it. One that `warns` keeps no job from starting.
    """

    code: str
    test: str
    hint: str
    deep: bool = False
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole job. `nodes` are all that may run; a generation's members are a choice of them."""

    job: str
    framework: str
    mode: Literal["collective", "ps"]
    target: TargetName
    owner: str
    run_id: str
    min_nodes: int
    max_nodes: int
    elastic: bool
    nodes: tuple[Node, ...]
    code: Code | None
    script: str | None  # absolute path of the script, where it lies on this machine and is not part of `code`
    outputs: tuple[str, ...]
    checkpoint: Checkpoint | None
    rendezvous: Rendezvous
    recovery: Recovery
    stop_grace: float
    spec_hash: str
    services: tuple[Service, ...] = ()
    cluster: ClusterOptions | None = None
    slurm: SlurmOptions | None = None
    needs: tuple[Need, ...] = ()
    counted: tuple[tuple[str, int], ...] = ()  # how many devices were found on hosts where nobody says how many
    fitness: Literal["off", "quick", "full"] = "off"  # how thoroughly hosts are measured before nodes start on them
    data: tuple[Dataset, ...] = ()
    spares: tuple[Node, ...] = ()  # launchers that wait on spare hosts, each without a number: see planner/spares.py
    build: Build | None = None  # what the nodes' image is made from, where jobctl makes it

    @property
    def sent(self) -> Sent:
        """What the hosts of nodes get from this machine."""
        return Sent(self.code, self.data)
