"""Preflight of this machine for a job of target `local`: are devices and ports there, and does the framework work?

No host has to be reached, and no container started: what looks around in a container elsewhere looks around here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping
from secrets import token_hex
from typing import Any

from jobctl.jobspec.deploy.check.probing import framework_findings, probe_said, probe_source
from jobctl.jobspec.deploy.check.survey import Found, Survey, etcd_port_taken, rendezvous_port_taken
from jobctl.jobspec.deploy.host.devices import count_devices
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.transport.descriptors import for_child
from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.records import dataclass

PROBE_TIMEOUT = 600.0  # seconds: some frameworks compile kernels when they are used for the first time


@dataclass(frozen=True, slots=True)
class PortsHere:
    """Which ports of this machine are free at an address (at all, if it is empty), and what of the job runs and has its own."""

    is_free: Callable[[str, int], bool]
    nodes: bool
    services: Collection[str]


def preflight(host: str, plan: Plan, environ: Mapping[str, str], ports: PortsHere, *, deep: bool) -> list[Finding]:
    """Return what there is to say of this machine; processes run with `environ`."""
    survey = Survey(plan, (), deep)
    findings = [*_devices(host, plan), *_ports(host, plan, ports)]
    if not any(finding.verdict == "error" for finding in findings) and (deep or survey.needs):
        findings += _framework(survey, host, plan.nodes[0], environ)
    return findings


def _devices(host: str, plan: Plan) -> Found:
    kind = _kind(plan)
    wanted = {index for node in plan.nodes for index in node.container.devices.ids or ()}
    if kind == "cpu":
        yield Finding(host, "devices", "ok", "the job asks for none beside the CPU")
        return
    has = count_devices(kind) or 0
    if wanted and max(wanted) >= has:
        sees = counted(has, "device") if has else "no devices"
        text = f"this machine has {sees} of kind `{kind}`, and the job asks for {_listed(wanted)}"
        hint = "is the driver loaded? Ask for what is there (`devices: cpu` needs none), or name hosts: `--hosts hosts.txt`"
        yield Finding(host, "devices", "error", text, "devices-missing", hint)
    else:
        yield Finding(host, "devices", "ok", f"{has} of kind `{kind}`")


def _ports(host: str, plan: Plan, ports: PortsHere) -> Found:
    port = plan.rendezvous.port
    if port is not None and not ports.nodes and not ports.is_free("", port):
        yield rendezvous_port_taken(host, port)
    for service in plan.services:
        wanted = () if service.name in ports.services else (service.port, service.port + 1)
        taken = [port for port in wanted if not ports.is_free(service.host.address, port)]
        yield from (etcd_port_taken(host, port) for port in taken)


def _kind(plan: Plan) -> str:
    """Return the kind of devices of a job: servers and schedulers have none."""
    kinds = [node.container.devices.kind for node in plan.nodes]
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def _listed(wanted: set[int]) -> str:
    return f"{len(wanted)}" if wanted == set(range(len(wanted))) else f"number {', '.join(map(str, sorted(wanted)))}"


def _framework(survey: Survey, host: str, node: Node, environ: Mapping[str, str]) -> Found:
    python = shutil.which(node.container.python, path=environ.get("PATH"))
    if python is None:
        text = f"there is no `{node.container.python}` on the PATH"
        hint = "install one of version 3.8 or later, or jobctl itself in an environment that has the framework"
        yield Finding(host, "framework", "error", text, "python-missing", hint)
        return
    token = token_hex(4)
    try:
        done = subprocess.run(
            [python, "-c", probe_source(), json.dumps(_task(survey, token))],
            env=dict(environ),
            capture_output=True,
            timeout=PROBE_TIMEOUT,
            check=False,
            preexec_fn=for_child(),
        )
        probe = probe_said(done.stdout, token)
        why = (done.stderr.strip() or b"it prints something else").decode("utf-8", "replace").splitlines()[-1]
    except subprocess.TimeoutExpired:
        probe, why = None, f"no end within {PROBE_TIMEOUT:g} s"
    if probe is None:
        text = f"cannot check the installation with `{node.container.python}`: {why}"
        yield Finding(host, "framework", "error", text, "framework-broken", "does it start at all?")
        return
    yield from framework_findings(survey, host, node, probe)


def _task(survey: Survey, token: str) -> dict[str, Any]:
    assert survey.plan is not None
    return {
        "kind": _kind(survey.plan),
        "paths": [],
        "module": framework(survey.plan.framework).module if survey.deep else None,
        "tests": [need.test for need in survey.needs],
        "token": token,
        "address": "",
        "ports": [],
    }
