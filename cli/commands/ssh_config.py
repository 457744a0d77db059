"""`jobctl ssh-config`: nodes as hosts of SSH clients."""

from __future__ import annotations

from jobctl import console
from jobctl.options import AcceptNew, ClusterContext, Hosts, Job, Namespace, SshConfig
from jobctl.views.failure import command


@command
def ssh_config(
    job: Job = None,
    hosts: Hosts = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
) -> None:
    """Print an SSH configuration for a job's nodes.

    Hosts `jobctl-JOB-N`, for editors that connect by SSH: each is the inside of a node.

    Example: jobctl ssh-config my-job > ~/.ssh/jobctl-my-job
    """
    from jobctl.jobspec.operations.inspect import ssh
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import Reached

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    console.out(ssh.ssh_config(running_job(job, reached).enterable(), reached).rstrip("\n"))
