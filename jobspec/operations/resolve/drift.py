"""Which keys of the spec are not as the job was started with, and what each of them makes necessary."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.operations.errors import OperationError, Refused
from jobctl.jobspec.operations.resolve.data import versions_in
from jobctl.jobspec.operations.resolve.job import Compiled, Where, as_started, job_of_name, known_hosts, load
from jobctl.jobspec.operations.resolve.planning import plan_of
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.changes import Changed
    from jobctl.jobspec.deploy.apply.deployer import Deployer
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.plan.types import Plan
    from jobctl.jobspec.spec.hosts import Host
    from jobctl.jobspec.spec.model import Spec

MAX_EXPLAINED_KEYS = 20  # keys of which each is asked for what it makes necessary; of more the first
MAX_NAMED_KEYS = 3  # keys that are named where the spec says something else than the last `up` used
SECRETS = "secrets."


def spec_started_with(directory: JobDir) -> Spec | None:
    """Return the spec that the job was last brought up with, None if that is not known here."""
    from pydantic import ValidationError

    from jobctl.jobspec.spec.model import spec_recorded

    source = directory.source()
    try:
        return None if source is None else spec_recorded(source["spec"])
    except ValidationError:
        return None  # of a version that knew other keys


def changed_keys(
    compiled: Compiled, plan: Plan, deployer: Deployer, *, secrets: bool = True
) -> tuple[Changed, ...] | None:
    """Return the keys of the spec that are not as the job was started with, None if that is not known here.

    What a key makes necessary is found by planning the job once more with its old value. Values of `secrets` count too.
    """
    from jobctl.jobspec.deploy.apply.changes import changed, differences
    from jobctl.jobspec.spec.model import as_written

    spec = spec_started_with(deployer.job)
    if spec is None:
        return None
    old, new = as_written(spec), as_written(compiled.spec)
    found = differences(old, new)
    effects = _Effects(compiled, plan, deployer) if found else None
    keys = [
        changed(path, old, new, **(effects.of(path, old, new) if effects and number < MAX_EXPLAINED_KEYS else {}))
        for number, path in enumerate(found)
    ]
    keys += [*changed_folder(compiled, plan, deployer), *changed_image(plan, deployer)]
    return (*keys, *(changed_secrets(compiled, deployer.job) if secrets else ()))


def differing(before: Spec, now: Spec) -> tuple[Changed, ...]:
    """Return the keys at which two specs differ, without what comes of that."""
    from jobctl.jobspec.deploy.apply.changes import changed, differences
    from jobctl.jobspec.spec.model import as_written

    old, new = as_written(before), as_written(now)
    return tuple(changed(path, old, new) for path in differences(old, new))


def changed_folder(compiled: Compiled, plan: Plan, deployer: Deployer) -> list[Changed]:
    """Return that the spec's folder is another one, where processes run in it."""
    from jobctl.jobspec.deploy.apply.changes import Changed

    before = ((deployer.job.source() or {}).get("context") or {}).get("directory")
    started, now = deployer.job.plan(), str(compiled.directory)
    if before in (None, now) or started is None or not traits_of(plan.target).is_here:
        return []
    ran_in = {node.index: node.launch.workdir for node in started.nodes}
    others = tuple(node.index for node in plan.nodes if ran_in.get(node.index) not in (None, node.launch.workdir))
    return [Changed("folder", before, now, nodes=others)] if others else []


def changed_image(plan: Plan, deployer: Deployer) -> list[Changed]:
    """Return that the image is built from something else than the one that the job was started with."""
    from jobctl.jobspec.deploy.apply.changes import Changed

    before = ((deployer.job.source() or {}).get("context") or {}).get("image")
    now = plan.build.image if plan.build else None
    if before is None or now is None or before == now:
        return []
    return [Changed("build", before, now, nodes=tuple(sorted(deployer.ids(plan))))]


def changed_secrets(compiled: Compiled, directory: JobDir) -> list[Changed]:
    """Return the secrets that have another value than the job was started with, as far as they can be read here."""
    from jobctl.jobspec.deploy.apply.changes import Changed
    from jobctl.jobspec.deploy.store.secrets import digests, own_key, readable_secrets
    from jobctl.jobspec.spec.sensitive import HIDDEN

    known = (directory.source() or {}).get("secrets", {})
    if not known or not directory.secrets_key.exists():
        return []
    values = readable_secrets(compiled.spec.secrets, compiled.directory, os.environ)
    now = digests(values, own_key(directory.secrets_key))
    names = [name for name, digest in now.items() if known.get(name, digest) != digest]
    return [Changed(f"{SECRETS}{name}", HIDDEN, HIDDEN, generation=True) for name in names]


def secret_digests(compiled: Compiled, directory: JobDir, values: Mapping[str, str]) -> dict[str, str]:
    """Return what tells the values of secrets from others; of one that is not among `values`, what was known of it."""
    from jobctl.jobspec.deploy.store.secrets import digests, own_key

    if not compiled.spec.secrets:
        return {}
    known = (directory.source() or {}).get("secrets", {})
    kept = {secret.name: known[secret.name] for secret in compiled.spec.secrets if secret.name in known}
    return {**kept, **digests(values, own_key(directory.secrets_key))}


def another_secret(found: Sequence[Changed] | None) -> str | None:
    """Return the cause of a new generation if secrets have other values: processes read them when they begin."""
    return "; ".join(str(one) for one in found or () if one.key.startswith(SECRETS)) or None


def compiled_as_started(name: str, where: Where) -> Compiled | None:
    """Return the job as it was last brought up, whatever its spec and the environment say by now; on the hosts of `where`.

    Where that names none they are those of the job's own hosts file. Raises Refused if it is gone.
    """
    directory = job_of_name(name)
    spec, about, source = spec_started_with(directory), directory.job_record(), directory.source()
    if spec is None or about is None or source is None:
        return None
    where = as_started(name, where)
    where = replace(where, on=where.on or about.get("on"), exclude=where.exclude or about.get("exclude"))
    every = known_hosts(where)
    used = _with_data(spec, every)
    return Compiled(
        spec,
        Path(source["context"]["directory"]),
        Path(os.path.relpath(about["spec"])) if Path(about["spec"]).is_relative_to(Path.cwd()) else Path(about["spec"]),
        about["target"],
        used,
        where.hosts,
        where.on,
        where.exclude,
        (),
        tuple(about.get("set") or ()),
        tuple(host for host in every if host not in used),
    )


def _with_data(spec: Spec, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Return the hosts that get all data of a job, as far as the hosts file still has them."""
    from jobctl.jobspec.spec.checks.data import hosts_with_data
    from jobctl.jobspec.spec.hosts import UnknownHost

    try:
        return hosts_with_data(spec, hosts)
    except UnknownHost as unknown:
        raise Refused(str(unknown), unknown.hint or "see `hosts` of `data` in the spec") from unknown


def say_drift(directory: JobDir, reporter: Reporter) -> None:
    """Tell that the spec, or the environment that it is filled in from, says something else than the last `up` used."""
    spec, about = spec_started_with(directory), directory.job_record()
    if spec is None or about is None:
        return
    loaded = load(about["spec"], about.get("set"))[1] if Path(about["spec"]).is_file() else None
    if loaded is None or loaded.spec is None:
        reporter.say(f"{about['spec']} cannot be read any more: the values of the last `up` are used")
        return
    found = [str(one) for one in differing(spec, loaded.spec)]
    if found:
        more = f"; and {len(found) - MAX_NAMED_KEYS} more" if len(found) > MAX_NAMED_KEYS else ""
        reporter.say(
            f"the spec or the environment says something else by now: {'; '.join(found[:MAX_NAMED_KEYS])}{more}"
        )
        reporter.say("the values of the last `up` are used; `jobctl up` takes the new ones")


class _Effects:
    """What a plan is compared with: the same one with the old value of a key."""

    def __init__(self, compiled: Compiled, plan: Plan, deployer: Deployer) -> None:
        self.compiled, self.plan, self.deployer = compiled, plan, deployer
        self.hashes = _hashes(deployer, plan)

    def of(self, path: tuple[str, ...], old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the change of one key makes necessary, as fields of Changed."""
        every = tuple(sorted(self.hashes))
        if path == ("nodes",):
            before = self.deployer.job.plan()
            return {"generation": before is not None and len(before.nodes) != len(every)}
        other = self._planned(path, old, new)
        if other is None:
            return {"nodes": every}  # nobody can say, so all may be
        hashes = _hashes(self.deployer, other)
        nodes = tuple(node for node in every if hashes.get(node) != self.hashes[node])
        return {"nodes": nodes, "generation": self._is_other_code(other), "later": _held(other) != _held(self.plan)}

    def _planned(self, path: tuple[str, ...], old: Mapping[str, Any], new: Mapping[str, Any]) -> Plan | None:
        from pydantic import ValidationError

        from jobctl.jobspec.deploy.apply.changes import value_at, with_value
        from jobctl.jobspec.spec.model import spec_recorded

        plan = self.plan
        placement = None if traits_of(plan.target).is_here else homes_of(plan)
        services = {service.name: service.host.name for service in plan.services}
        try:
            spec = spec_recorded(with_value(new, path, value_at(old, path)))
            count = len(plan.nodes) if plan.elastic else None
            before = versions_in(self.deployer.job.plan()) if path[0] == "data" else {}
            other = replace(self.compiled, spec=spec)
            return plan_of(
                other, placement, count, services, dict(plan.counted) or None, {**before, **versions_in(plan)}
            )
        except (ValidationError, OperationError):
            return None

    def _is_other_code(self, other: Plan) -> bool:
        from jobctl.jobspec.deploy.store.code import code_hash

        return not traits_of(self.plan.target).sends_code and code_hash(other) != code_hash(self.plan)


def _hashes(deployer: Deployer, plan: Plan) -> dict[int, str]:
    """Return the hash of each node's artefact, as this version of jobctl makes them."""
    return {node: artefact.hash for node, artefact in deployer.ids(plan).items()}


def _held(plan: Plan) -> tuple[Any, ...]:
    """Return what a generation holds of a plan, whatever becomes of the spec while it runs."""
    return plan.recovery.host_timeout, plan.stop_grace, plan.rendezvous


def unnamed(found: Sequence[Changed] | None, steps: Sequence[Step]) -> list[Changed]:
    """Return the changes that no step names as its cause."""
    return [one for one in found or () if not any(str(one) in step.cause for step in steps)]
