"""Ports that two things on the same machine would use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source


def check_ports(spec: Spec, source: Source, hosts: Sequence[Host]) -> Iterator[Diagnostic]:
    """Yield an error for each port of a job that is taken on its hosts, and for an etcd with too few of them."""
    port = spec.rendezvous.port
    managed = spec.etcd.managed if spec.etcd else None
    if port is not None and any(port == (host.port or 22) for host in hosts):
        message = f"port {port} is the hosts' SSH port"
        yield Diagnostic("error", "port-collision", message, source.value_span(("rendezvous", "port")))
    members = sum(not host.spare for host in hosts)
    if managed is not None and hosts and managed.replicas > members:
        message = f"a managed etcd of {managed.replicas} members needs as many hosts, and the hosts file has {members}"
        span = source.value_span(("etcd", "managed", "replicas"))
        yield Diagnostic("error", "too-few-hosts", message, span, "add hosts, or `replicas: 1`")
    yield from check_etcd_port(spec, source)
    if managed is not None and any((host.port or 22) in (managed.port, managed.port + 1) for host in hosts):
        message = f"port {managed.port} of the managed etcd is the hosts' SSH port"
        yield Diagnostic("error", "port-collision", message, source.value_span(("etcd", "managed")))


def check_etcd_port(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield an error for a rendezvous at a port of the managed etcd: its first member is where the first node is."""
    managed = spec.etcd.managed if spec.etcd else None
    if managed is not None and spec.rendezvous.port in (managed.port, managed.port + 1):
        message = f"port {spec.rendezvous.port} is one of the managed etcd's ({managed.port} and {managed.port + 1})"
        yield Diagnostic("error", "port-collision", message, source.value_span(("rendezvous", "port")))
