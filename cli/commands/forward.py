"""`jobctl forward`: ports of nodes, on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from jobctl import completion
from jobctl.options import AcceptNew, ClusterContext, Hosts, Namespace, SshConfig
from jobctl.views.failure import Failed, command


@command
def forward(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[JOB] PORT[:NODE[:PORT]]...",
            help="The job, default ./job.yaml. Then ports: of this machine, of which node (default 0), and there "
            "(default: the same).",
            autocompletion=completion.jobs,
            show_default=False,
        ),
    ],
    hosts: Hosts = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
) -> None:
    """Forward ports of this machine to ports of nodes.

    Until Ctrl-C. If a node moves to another host, its port stays the same here.

    Example: jobctl forward my-job 6006:0
    """
    from jobctl.jobspec.operations.inspect.forward import FORM, forward_ports, is_port_forward, parse_port_forward
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.running import running_handle
    from jobctl.views.reporter import Terminal

    job, ports = (None, words) if is_port_forward(words[0]) else (words[0], words[1:])
    if not ports:
        raise Failed("no port is given", 2, FORM)
    wanted = [parse_port_forward(one) for one in ports]
    handle = running_handle(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    forward_ports(handle, wanted, Terminal())
