"""Addresses of hosts that a framework cannot use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.hosts import Host, is_ipv6
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source


def check_addresses(spec: Spec, source: Source, hosts: Sequence[Host]) -> Iterator[Diagnostic]:
    """Yield an error for paddle's processes on an IPv6 address: it splits `ADDRESS:PORT` at each colon (2.x and 3.x).

    Those of one node in mode `collective` meet without the address. `hosts` are those that nodes may be on.
    """
    if spec.framework != "paddle" or (spec.nodes.max == 1 and spec.mode == "collective"):
        return
    host = next((host for host in hosts if is_ipv6(host.address)), None)
    if host is not None:
        message = f"processes of paddle cannot meet at an IPv6 address, as {host.name} has"
        hint = "give the host's IPv4 address in the hosts file: `addr=10.0.0.1`"
        yield Diagnostic("error", "paddle-host-address", message, source.value_span(("framework",)), hint)
