"""What goes wrong with PaddlePaddle: installations that cannot run a job, and failures that no restart fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.plan.types import Need

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec

RULES = (
    # Its launcher ends with the first question that etcd does not answer, as while a new leader is elected.
    Rule(r"^(etcd3\.exceptions|grpc\._channel)\._?\w+(Error|TimedOut|Rendezvous)\b", None, "restart"),
    # Its launcher has threads of gRPC while it starts a process. The fork meets them now and then, and aborts.
    Rule(r"\bEpoll1Poller:\S+ encountered epoll_wait error\b", None, "restart"),
    Rule(r"No module named 'etcd3'", None, "fail", "Paddle speaks to etcd through it: `setup: pip install etcd3`"),
    Rule(
        # By what is missed first, in the modes async, and sync and geo.
        r"(cannot import name|has no attribute) '(CommContext|DistFleetWrapper)'"
        r'|Operator "(listen_and_serv|send\w*|fetch_barrier)" has not been registered',
        None,
        "fail",
        "this Paddle was built without parameter servers: take an image with 3.0.0 or earlier, or one built WITH_PSCORE=ON",
    ),
    Rule(
        r"paddle::operators::SendBarrierOp::RunImpl",
        None,
        "fail",
        "trainers of Paddle 3.0.0 crash so with `a_sync = False`: say `strategy.a_sync = True` in the script",
    ),
)


_ETCD3 = Need(
    "etcd-client-missing",
    """import importlib.util, sys
if importlib.util.find_spec("etcd3") is None: sys.exit("there is no `etcd3`, through which Paddle speaks to etcd")""",
    "`setup: pip install etcd3`",
)
_SERVERS = Need(
    "ps-core-missing",
    """import os, sys
os.environ["FLAGS_enable_pir_api"] = "0"
import paddle
core = getattr(paddle, "base", None) or paddle.fluid
if not {"DistFleetWrapper", "CommContext"} & {*dir(core.core)}: sys.exit("Paddle %s was built without parameter servers" % paddle.__version__)""",
    "take Paddle 3.0.0 or earlier, or one built WITH_PSCORE=ON",
)
# The communicator that its barrier needs is made in mode geo only (SendBarrierOp).
_SYNC_CRASH = Need(
    "sync-crash",
    """import sys, paddle
if paddle.__version__.split(".")[:2] == ["3", "0"]: sys.exit("trainers of Paddle %s with `a_sync = False` end in a segmentation fault" % paddle.__version__)""",
    "say `strategy.a_sync = True` in the script; `ps.sync` only says that trainers start again together",
    warns=True,
)
# With 2 servers wait for trainers in fleet.init, so all have to start at the same time; since 3.0 trainers do not wait
# for servers that listen (`wait_server_ready` does nothing), and send to ports where nobody is yet.
_GLOO_RACE = Need(
    "gloo-race",
    """import sys, paddle
if int(paddle.__version__.split(".")[0] or 3) >= 3: sys.exit("with `ps.gloo: 2`, trainers of Paddle %s do not wait for servers" % paddle.__version__)""",
    "leave `gloo` out, or take `gloo: 1`",
)
_RUN_CHECK = Need(
    "framework-broken",
    """import paddle
try: run_check = paddle.utils.run_check
except AttributeError: from paddle.fluid.install_check import run_check
run_check()""",
    "`paddle.utils.run_check()` fails: does Paddle fit the devices and their driver?",
    deep=True,
)


def installed(spec: Spec, old: bool) -> tuple[Need, ...]:
    """Return what an installation has to have for this job; `old`: jobctl starts its processes, not Paddle's launcher."""
    brings_etcd3 = any("etcd3" in command for command in spec.setup)
    return (
        *((_ETCD3,) if spec.etcd and spec.ps is None and not old and not brings_etcd3 else ()),
        # In those of Paddle 1 it has another name, and is always there.
        *((_SERVERS,) if spec.ps is not None and not old else ()),
        *((_GLOO_RACE,) if spec.ps is not None and spec.ps.gloo == 2 else ()),
        *((_SYNC_CRASH,) if spec.ps is not None and spec.ps.sync and not old else ()),
        _RUN_CHECK,
    )
