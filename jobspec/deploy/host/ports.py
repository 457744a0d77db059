"""Which TCP ports of a host are in use, by processes that listen and by the generations of other jobs."""

from __future__ import annotations

import re

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.transport.base import checked

_LISTEN = b"0A"  # the state in /proc/net/tcp (include/net/tcp_states.h)
_AT = re.compile(rb"[0-9A-F]+:([0-9A-F]{1,4})")
_NUMBER = re.compile(rb"\b\d{1,5}\b")
_PORT = re.compile(rb'"ports?": ([\d\[\],\s]+)')  # of a rendezvous, or of processes


def used_ports(host_job: HostJob) -> frozenset[int]:
    """Return the ports of a host that are taken. Raises HostError."""
    argv = SCRIPTS.argv("used_ports", str(host_job.work.parent), host_job.job)
    found = checked(host_job.transport, argv, "see which ports are in use")
    table, _, controls = found.partition(b"\n\n")
    columns = (line.split() for line in table.splitlines())
    listening = {
        int(at[1], 16)
        for found in columns
        if len(found) > 3 and found[3] == _LISTEN and (at := _AT.fullmatch(found[1]))
    }
    return frozenset(listening | {int(port) for found in _PORT.findall(controls) for port in _NUMBER.findall(found)})
