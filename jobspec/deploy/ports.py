"""Which TCP ports of a host are in use, by whoever listens and by the generations of other jobs."""

from __future__ import annotations

import re

from jobctl.jobspec.deploy.site import Site
from jobctl.jobspec.deploy.transport import checked

_LISTEN = "0A"  # the state in /proc/net/tcp (include/net/tcp_states.h)
_PORT = re.compile(rb'"ports?": ([\d\[\],\s]+)')  # of a rendezvous, or of processes

# The tables of the kernel, then the control files of the other jobs below the same folder.
_LOOK = """\
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; echo; cd -- "$1" 2>/dev/null || exit 0
for job in */; do [ "$job" = "$2/" ] || cat -- "$job/run/control.json" 2>/dev/null; done; :
"""


def used_ports(site: Site) -> frozenset[int]:
    """Return the ports of a host that are taken. Raises HostError."""
    argv = ["sh", "-c", _LOOK, "sh", str(site.work.parent), site.job]
    found = checked(site.transport, argv, "see which ports are in use")
    table, _, controls = found.partition(b"\n\n")
    listening = {
        int(fields[1].rpartition(":")[2], 16)
        for line in table.decode().splitlines()
        if len(fields := line.split()) > 3 and fields[3] == _LISTEN
    }
    return frozenset(
        listening | {int(port) for found in _PORT.findall(controls) for port in re.findall(rb"\d+", found)}
    )
