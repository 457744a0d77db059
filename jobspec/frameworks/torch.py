"""PyTorch: one torchrun per node, static rendezvous, no restarts of its own; in mode `ps` role processes without it.

torchrun's in-place restarts hang in most tries because the ranks of the new attempt read the store of the old
one, and its elastic membership needs a store of its own and moves ranks (docs/recovery.md). So each generation
is a fresh torchrun with a fresh port: `--max-restarts=0`, N = members, ranks from the control file.

torchrun knows no roles. So in mode `ps` each process is started by itself, with what torch.distributed.rpc needs to meet:
`init_rpc` waits for all of the world, so servers and trainers start together, and none can come back alone (without a
`world_size` neither: a process that joins asks all that ever did). Trainers that speak to servers in another way can: `rejoin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from jobctl.jobspec.frameworks.base import LaunchSpec, Programs, RankSet, Role, interfaces, served, standby
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.plan.types import Need, Slot, Value
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.parts.parts import RENDEZVOUS_TIMEOUT

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.parts.parts import Ps

# PyTorch imports its compiler with the first optimizer, which takes as long as all the rest.
_IMPORTS = (("torch", "torch.distributed"), ("torch._dynamo",))
_CHANGING = (
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE"),
    *("TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"),
)

# NCCL and Gloo choose an interface by themselves and choose wrong on hosts with several (docs of
# torch.distributed, "Common environment variables").
_INTERFACE_ENV = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")

_DECIDED = frozenset(
    ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")
)


# torchrun takes them for options, of which jobctl does not say the others: where nodes meet, and what runs. A torchrun
# of the user's own, with `per: node`, gets them.
_SCRUBBED = ("PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_STANDALONE", "PET_MODULE", "PET_RUN_PATH")

_INSTEAD = {
    "PET_RDZV_ENDPOINT": "`rendezvous.port`, or the hosts file,",
    "PET_MODULE": "`module`",
    "PET_RUN_PATH": "`script`",
    "MASTER_PORT": "`rendezvous.port`",
    "WORLD_SIZE": "`nodes`, with `devices`,",
    "LOCAL_WORLD_SIZE": "`devices`",
}

# Of each kind of devices: what PyTorch calls one, the module that brings it, and the backend of its collectives.
_COMPUTES = {
    "cpu": ("cpu", "torch", "gloo"),
    "gpu": ("cuda", "torch", "nccl"),
    "dcu": ("cuda", "torch", "nccl"),
    "xpu": ("xpu", "torch", ""),
    "npu": ("npu", "torch_npu", ""),
}


def _run_check(device: str, module: str, backend: str) -> Need:
    return Need(
        "framework-broken",
        f"""import sys, torch, {module}
import torch.distributed as d
try:
    x = torch.ones(8, 8, device={device!r})
    if float((x @ x).sum()) != 512: raise ValueError("8 x 8 ones times themselves is wrong")
except Exception as error: sys.exit("PyTorch %s cannot compute on `{device}`: %s" % (torch.__version__, " ".join(str(error).split())[:300]))
if not d.is_available(): sys.exit("PyTorch %s was built without torch.distributed" % torch.__version__)
if {backend!r} and not getattr(d, "is_{backend}_available", lambda: True)(): sys.exit("PyTorch %s was built without {backend}" % torch.__version__)""",
        "was PyTorch built for the devices of the job, and does it fit their driver?",
        deep=True,
    )


_PROGRAMS = Programs(sum="torch_sum")


@dataclass(frozen=True, slots=True)
class Torch:
    """torch.distributed.run, or processes of torch.distributed.rpc."""

    module: str = "torch"
    rules: tuple[Rule, ...] = ()
    programs: Programs = _PROGRAMS

    def roles(self, spec: Spec) -> tuple[Role, ...]:
        """Return trainers, and servers where there are any."""
        return served(spec)

    def start(self, spec: Spec, node: RankSet) -> LaunchSpec:
        """Return torchrun's command line; flags as in `torchrun --help` of 2.x."""
        if spec.ps is not None:
            return _role(spec, spec.ps, node)
        further = spec.torch.torchrun if spec.torch else ()
        argv = _torchrun(node.python, node.nproc, further, (*_keep_nothing(further), *_patience(spec)))
        waits = standby(spec, *_IMPORTS, launcher="torch.distributed.run", changing=_CHANGING)
        scrub = () if spec.command is not None and spec.per == "node" else _SCRUBBED
        return LaunchSpec(argv, (), interfaces(spec, *_INTERFACE_ENV), "workerlog", scrub=scrub, standby=waits)

    def start_under_operator(self, spec: Spec, node: RankSet, operator: str) -> LaunchSpec:
        """Return torchrun's command line; of an elastic job it reads the rest from PET_… variables that the operator sets."""
        # A script it starts by itself; what is none, it has to be told.
        last: tuple[Value, ...] = ("--no-python", Slot("process"))
        if spec.script is not None and spec.script.endswith(".py"):
            last = (Slot("process_script"),)
        further = spec.torch.torchrun if spec.torch else ()
        if not spec.nodes.elastic:
            argv = _torchrun(node.python, node.nproc, further, _patience(spec))[:-2]
        else:
            argv = (*_module(node.python), *further, "--nproc-per-node", str(node.nproc))
        return LaunchSpec((*argv, *last), (), interfaces(spec, *_INTERFACE_ENV), "workerlog")

    def visible_devices_env(self, kind: str) -> tuple[str, ...]:
        """None: PyTorch uses the variables of the devices' own libraries."""
        return ()

    def reserved_env(self) -> frozenset[str]:
        """What torchrun sets for each process."""
        return _DECIDED

    def spec_keys_by_variable(self) -> Mapping[str, str]:
        """Return what says how many processes there are, and where they meet."""
        return _INSTEAD

    def image_requirements(self, spec: Spec) -> tuple[Need, ...]:
        """Return a test of an installation; PyTorch has none of its own."""
        return (_run_check(*_COMPUTES.get(spec.devices.kind, _COMPUTES["cpu"])),)


def _role(spec: Spec, ps: Ps, node: RankSet) -> LaunchSpec:
    server = node.role == "server"
    alone = spec.torch is not None and spec.torch.rejoin and not server
    return LaunchSpec(
        argv=(),
        env=(
            *(("MASTER_ADDR", Slot("master_addr")), ("MASTER_PORT", Slot("master_port"))),
            *(("JOBCTL_SERVERS", Slot("servers")), ("JOBCTL_TRAINERS", Slot("trainers"))),
        ),
        interface_env=_INTERFACE_ENV,
        log_name="serverlog" if server else "workerlog",
        rank_env=("JOBCTL_ROLE_RANK", "LOCAL_RANK"),
        process_env=(("RANK", Slot("job_rank")), ("WORLD_SIZE", Slot("job_size"))),
        listens=True,
        after="server" if alone else "",
        until="trainer" if server else "",
        rejoin=spec.recovery.max_restarts if alone and not ps.sync else None,
        standby=standby(spec, *_IMPORTS),
    )


def _module(python: str) -> tuple[Value, ...]:
    return (python, "-m", "torch.distributed.run")


def _keep_nothing(further: tuple[str, ...]) -> tuple[Value, ...]:
    """Return where torchrun keeps what it would leave behind in /tmp; nothing if the user has it write logs."""
    logs = any(option.startswith(("-r", "-t", "--redirects", "--tee", "--log")) for option in further)
    return () if logs else ("--log-dir", Slot("scratch"))


def _patience(spec: Spec) -> tuple[Value, ...]:
    """Return how long torchrun waits for the others, in seconds; nothing where its own 15 minutes do."""
    timeout = spec.rendezvous.timeout
    return () if timeout == RENDEZVOUS_TIMEOUT else ("--rdzv-conf", f"timeout={ceil(timeout)}")


def _torchrun(python: str, nproc: int, further: tuple[str, ...], ours: tuple[Value, ...]) -> tuple[Value, ...]:
    return (
        *_module(python),
        *ours,
        *further,  # first: torchrun goes by the last of two, and who the members are is not the user's to say
        *("--nnodes", Slot("nnodes"), "--node-rank", Slot("node_rank")),
        *("--nproc-per-node", str(nproc)),
        *("--master-addr", Slot("master_addr"), "--master-port", Slot("master_port")),
        *("--rdzv-id", Slot("rdzv_id"), "--local-addr", Slot("address")),
        *("--max-restarts", "0", "--no-python"),
        Slot("process"),
    )


FRAMEWORK = Torch()
