"""From a compiled job to its plan, and to the deployer of the job."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.store.login import user_name
from jobctl.jobspec.operations.errors import HostsFailed, Refused
from jobctl.jobspec.operations.resolve.job import job_of_name
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jobctl.jobspec.deploy.apply.deployer import Deployer
    from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.resolve.job import Checked, Compiled, Reached
    from jobctl.jobspec.plan.types import Plan
    from jobctl.jobspec.planner.context import Context
    from jobctl.jobspec.spec.hosts import Host


def plan_in_place(compiled: Compiled, reached: Reached, count: int | None = None) -> tuple[Plan, Deployer]:
    """Return the plan of a compiled job whose nodes stay on the hosts where they are, and its deployer.

    `up` or the supervisor has noted on this machine where they are; otherwise the hosts tell. A hosts file in
    another order moves nothing; a node whose host is not in it any more gets the first that is free. `count`: how many
    nodes of its range an elastic job gets, default as many as there is room for.
    """
    from jobctl.jobspec.operations.resolve.data import data_versions
    from jobctl.jobspec.operations.resolve.devices import devices_of

    directory = job_of_name(compiled.spec.name)
    old = directory.plan()
    deployer = deployer_of(directory, compiled.target, inventory_for(compiled, reached), old)
    deployer.preconnect()
    services = {service.name: service.host.name for service in old.services} if old else {}
    devices, versions = devices_of(compiled, deployer, old), data_versions(compiled, deployer, old)
    made = deployer.plan = plan_of(compiled, None, count, services, devices, versions)
    if traits_of(made.target).is_here:
        return made, deployer
    if old is None:
        homes = deployer.newest().placement
    elif traits_of(old.target).is_here:
        homes = {}
    else:
        homes = homes_of(old)
    placement = _placement(compiled, made, homes)
    placed = plan_of(compiled, placement, count, services, devices, versions) if placement else made
    deployer.plan = placed
    return placed, deployer


def checked_plan(checked: Checked) -> Checked:
    """Return what was found, and why a job can have no plan on its hosts, as far as that is certain before they are asked."""
    compiled = checked.compiled
    if compiled is None or not compiled.hosts:
        return checked
    from jobctl.jobspec.operations.version import version
    from jobctl.jobspec.planner.context import Context, PlanError
    from jobctl.jobspec.planner.job import plan as make_plan
    from jobctl.jobspec.spec.diagnostics import Diagnostic, in_order

    try:
        make_plan(compiled.spec, compiled.hosts, Context(compiled.target, str(compiled.directory), owner(), version()))
    except PlanError as error:
        if error.code in _NO_ERRORS_YET:
            return checked
        where = checked.loaded.source.value_span(error.path)
        found = [*checked.diagnostics, Diagnostic("error", error.code, error.message, where, error.hint)]
        return replace(checked, compiled=None, diagnostics=in_order(found, [str(file) for file in checked.files]))
    return checked


_NO_ERRORS_YET = ("devices-unknown", "no-shared-folder")  # hosts are asked for the first; a warning tells of the other


def _placement(compiled: Compiled, made: Plan, known: Mapping[int, str]) -> Mapping[int, str] | None:
    """Return where the nodes of a job belong, None if that is where `made` has them."""
    room = [host.name for host in compiled.hosts if not host.spare and host.trains for _ in range(host.nodes)]
    every = {host.name for host in compiled.hosts}
    homes = {node: host for node, host in known.items() if node < len(made.nodes) and host in every}
    for host in homes.values():
        if host in room:
            room.remove(host)
    rest = [node.index for node in made.nodes if node.index not in homes]
    placement = homes | dict(zip(rest, room, strict=False))
    if len(placement) < len(made.nodes) or all(node.host.name == placement[node.index] for node in made.nodes):
        return None
    return placement


def inventory_for(compiled: Compiled, reached: Reached) -> Inventory | None:
    """Return how the hosts of a compiled job are reached, None where it runs on this machine."""
    from jobctl.jobspec.deploy.model.inventory import Inventory

    if not traits_of(compiled.target).takes_hosts:
        return None
    job = job_of_name(compiled.spec.name)
    options = ssh_options(reached.ssh_config, reached.accept_new, job.inventory())
    return Inventory(compiled.hosts, options, others=compiled.others).with_hosts(met_hosts(job))


def met_hosts(directory: JobDir) -> tuple[Host, ...]:
    """Return the hosts on which something of a job may be, as far as that is known here."""
    known, unmet = directory.inventory(), directory.unreached_hosts()
    return tuple(host for host in known.hosts if host.name not in unmet) if known is not None else ()


def owner() -> str:
    """Return whose jobs these are: user@machine, as in the label `jobctl.owner`."""
    return f"{user_name()}@{socket.gethostname()}"


def plan_of(
    compiled: Compiled,
    placement: Mapping[int, str] | None = None,
    count: int | None = None,
    services: Mapping[str, str] | None = None,
    devices: Mapping[str, int] | None = None,
    versions: Mapping[str, str | None] | None = None,
) -> Plan:
    """Return the plan of a compiled job, its nodes, services and devices placed and counted as given.

    `versions` are those of data on hosts, as far as somebody has asked them. Raises Refused where it cannot be planned.
    """
    from jobctl.jobspec.deploy.host.devices import count_devices
    from jobctl.jobspec.planner.context import Placement, PlanError
    from jobctl.jobspec.planner.job import plan as make_plan

    context, traits = context_of(compiled), traits_of(compiled.target)
    if traits.is_here and (found := count_devices(compiled.spec.devices.kind)):
        devices = {"localhost": found}
    try:
        where = Placement(placement or {}, services or {})
        plan = make_plan(compiled.spec, compiled.hosts, context, where, devices, count)
    except PlanError as error:
        if traits.is_here and error.code == "devices-unknown":
            message = f"{compiled.path}: this machine has no devices of kind `{compiled.spec.devices.kind}`"
            hint = "are the driver and its device nodes there? `devices: cpu` asks for none"
            raise HostsFailed(f"{message} [devices-missing]", hint) from error
        raise Refused(f"{compiled.path}: {error.message} [{error.code}]", error.hint) from error
    if traits.takes_hosts:
        plan = _with_data(_with_build(plan, compiled), versions or {})
    if plan.code is None:
        return plan
    from jobctl.jobspec.operations.resolve.code import no_code

    withheld = (*plan.code.withheld, *no_code(compiled.path, compiled.hosts_path))
    plan = replace(plan, code=replace(plan.code, withheld=withheld))
    return _packed(plan) if traits.sends_code else plan


def _with_build(plan: Plan, compiled: Compiled) -> Plan:
    """Return `plan` with the files that belong to no image, if it has one built."""
    if plan.build is None:
        return plan
    from jobctl.jobspec.operations.resolve.build import with_withheld

    return replace(plan, build=with_withheld(plan.build, compiled.path, compiled.hosts_path))


def _with_data(plan: Plan, known: Mapping[str, str | None]) -> Plan:
    """Return `plan` with the versions of its data, those on hosts as known. Raises Refused if it cannot be read."""
    if not plan.data:
        return plan
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.store.data import version_of

    try:
        versions = [known.get(one.name) if one.host else version_of(one) for one in plan.data]
    except DeployError as error:
        raise Refused(error.message, error.hint) from error
    data = tuple(replace(one, version=version) for one, version in zip(plan.data, versions, strict=True))
    return replace(plan, data=data)


def _packed(plan: Plan) -> Plan:
    """Return `plan` with the version of its code, and with the code itself where manifests carry it."""
    from jobctl.jobspec.deploy.sending.send_code import archive_of
    from jobctl.jobspec.deploy.store.code import code_hash

    assert plan.code is not None
    archive = archive_of(plan) if traits_of(plan.target).is_stream else None
    return replace(plan, code=replace(plan.code, archive=archive, version=code_hash(plan)))


def context_of(compiled: Compiled) -> Context:
    """Return what the planner may know of the outside. Raises Refused if what is to be built is not there."""
    from jobctl.jobspec.operations.resolve.build import built_image
    from jobctl.jobspec.operations.version import version
    from jobctl.jobspec.planner.context import Context

    spec, directory = compiled.spec, compiled.directory
    here = spec.script is not None and os.path.isfile(directory / spec.script)
    return Context(compiled.target, str(directory), owner(), version(), here, built_image(compiled))


def deployer_of(directory: JobDir, target: str, reach: Inventory | None, plan: Plan | None = None) -> Deployer:
    """Return what brings a job up on hosts or on this machine, and looks at it."""
    if reach is not None:
        from jobctl.jobspec.deploy.targets.hosts import Hosts

        return Hosts(directory, traits_of(target).starter, reach, plan)
    from jobctl.jobspec.deploy.targets.local.deployer import Local

    return Local(directory, plan)


def ssh_options(config: Path | None, accept_new: bool, known: Inventory | None) -> SshOptions:
    """Return SSH's options: as given, otherwise as the job was started with, or for a new one the user's defaults.

    Raises Refused for a file that is not there.
    """
    from jobctl.jobspec.deploy.model.inventory import SshOptions
    from jobctl.jobspec.operations.resolve.settings import default_ssh_config

    if config is not None and not config.is_file():
        raise Refused(f"there is no SSH configuration {config}", "`--ssh-config` names a file like ~/.ssh/config")
    before = known.ssh if known else SshOptions(None if config else default_ssh_config())
    return SshOptions(config or before.config, accept_new or before.accept_new)
