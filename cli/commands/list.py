"""`jobctl list`: the jobs known here, or those on hosts."""

from __future__ import annotations

from jobctl.console import command
from jobctl.options import AcceptNew, Format, Hosts, Output, SshConfig


@command
def list_(
    hosts: Hosts = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """List the jobs known here; with --hosts, those on hosts.

    With --hosts: whose they are, and which devices are used and free.

    Example: jobctl list --hosts hosts.txt
    """
    from jobctl.listing import jobs_on_hosts, known_jobs_table

    if hosts is None:
        known_jobs_table(output)
    else:
        jobs_on_hosts(hosts, ssh_config, accept_new, output)
