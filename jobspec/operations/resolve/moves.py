"""One job, one place: in a second one it would train twice, and only one of the two be known."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import NotYours, OperationError, Refused
from jobctl.jobspec.operations.resolve.job import job_of_name
from jobctl.jobspec.operations.resolve.ownership import is_alive, same_folder, spec_of
from jobctl.jobspec.operations.resolve.planning import deployer_of, met_hosts, ssh_options
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.inventory import SshOptions
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
    from jobctl.jobspec.deploy.slurm.queue import SlurmLook
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.resolve.job import Compiled, Reached
    from jobctl.jobspec.spec.hosts import Host

MAX_NAMED = 3  # hosts that are named
_START = PurePosixPath("run/start.json")  # when the job was first submitted: no two jobs have the same


def refuse_move(compiled: Compiled, reached: Reached) -> None:
    """Raise Refused if the job is up on another kind of target, or in another place on its hosts.

    Raise NotYours if that is the job of another folder: taking it down would be the wrong remedy.
    """
    directory, target = job_of_name(compiled.spec.name), compiled.target
    before = (directory.job_record() or {}).get("target")
    if before is not None and traits_of(before).place == traits_of(target).place:
        if traits_of(target).takes_hosts:
            _refuse_moved_hosts(directory, compiled, reached)
    elif before is not None and (
        not traits_of(before).is_here or is_alive(deployer_of(directory, before, None).observe())
    ):
        raise _moved(directory, compiled, f"on target `{before}`", f"on target `{target}`")


def _refuse_moved_hosts(directory: JobDir, compiled: Compiled, reached: Reached) -> None:
    before, known = {host.name: host for host in met_hosts(directory)}, directory.inventory()
    moved = [host for host in compiled.hosts if host.name in before and before[host.name].place != host.place]
    if moved and known is not None:
        now = ssh_options(reached.ssh_config, reached.accept_new, known)
        moved = [host for host in moved if not _is_same_place(before[host.name], known.ssh, host, now)]
    if not moved:
        return
    first = moved[0]
    there, here = _line(before[first.name], first), _line(first, before[first.name])
    names = ", ".join(host.name for host in moved[:MAX_NAMED]) + (" …" if len(moved) > MAX_NAMED else "")
    hint = f"`jobctl down {directory.name}` first, or leave the lines of these hosts as they were"
    raise _moved(directory, compiled, f"on {names} with {there}", f"with {here}", hint)


def _is_same_place(before: Host, before_by: SshOptions, host: Host, by: SshOptions) -> bool:
    """Say whether two lines mean one place, as one of them names the user whom the SSH configuration gives the other."""
    from jobctl.jobspec.deploy.transport.connecting import login_user

    if replace(before, user=None).place != replace(host, user=None).place:
        return False
    user = login_user(before, before_by)
    return user is not None and user == login_user(host, by)


def _line(host: Host, other: Host) -> str:
    """Return what the line of a host says of its place that another line does not."""
    words = [f"`dir={host.dir}`"] if host.dir != other.dir else []
    words += [f"user `{host.user}`" if host.user else "no user"] if host.user != other.user else []
    words += [f"`docker={host.docker}`" if host.docker else "no `docker`"] if host.docker != other.docker else []
    return " and ".join(words)


def refuse_move_in_slurm(allocation: SlurmAllocation, compiled: Compiled, *, take_over: bool) -> None:
    """Raise Refused, or NotYours, if the job is up in another directory, or through another cluster's login node.

    `take_over`: the user says that it has ended, if that place does not answer.
    """
    before = _allocation_before(allocation)
    if before is None:
        return
    with closing(before):
        now = allocation.look_anew()
        runs = now.entry is not None and not now.entry.over
        if before.login.work == allocation.login.work and (runs or now.result is not None):
            return  # another login node of the same cluster
        if _is_left(before, now, take_over=take_over):
            raise _moved(allocation.job, compiled, f"in {_place_of(before)}", f"in {_place_of(allocation)}")


def _allocation_before(allocation: SlurmAllocation) -> SlurmAllocation | None:
    """Return the job where it was brought up, None if that is where it is to be now."""
    from jobctl.jobspec.deploy.model.inventory import Inventory
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation

    plan, known = allocation.job.plan(), allocation.job.inventory()
    if plan is None or plan.slurm is None or known is None:
        return None
    if (plan.slurm.work, known.hosts) == (allocation.login.work, allocation.inventory.hosts):
        return None
    return SlurmAllocation(allocation.job, Inventory(known.hosts, allocation.inventory.ssh), plan.slurm.work, plan)


def _is_left(before: SlurmAllocation, now: SlurmLook, *, take_over: bool) -> bool:
    """Say whether something of the job is where it was before, and not here, as `now` has it: one directory may have two names.

    Raises Refused if nobody can tell.
    """
    from jobctl.jobspec.deploy.model.errors import HostError

    name = before.job.name
    try:
        look = before.look_anew()
    except HostError as error:
        if take_over:
            return False
        message = f"nobody can tell whether job `{name}` still runs in {before.login.work}: {error.message}"
        raise Refused(
            message, f"`jobctl down {name}` once it answers, or `--take-over` if that job has ended"
        ) from error
    runs = look.entry is not None and not look.entry.over
    same_job = not runs or (now.entry is not None and look.entry is not None and now.entry.job_id == look.entry.job_id)
    start = _START in look.files and look.files[_START] == now.files.get(_START)
    return before.has_files() and not (start and same_job)


def _place_of(allocation: SlurmAllocation) -> str:
    """Return where a job's files are, in words."""
    local = allocation.inventory.hosts[0].local
    return allocation.login.work if local else f"{allocation.login.work} of {allocation.login.name}"


def _moved(directory: JobDir, compiled: Compiled, there: str, here: str, hint: str | None = None) -> OperationError:
    """Return why a job that is up `there` is not brought up `here`."""
    name, first = directory.name, spec_of(directory)
    if first is not None and first.exists() and not same_folder(first, compiled.path):
        return NotYours(
            f"job `{name}` was started from {first}, and is up {there}: it is left alone",
            f"give yours another `name`; `jobctl down {name}` ends that one",
        )
    return Refused(
        f"job `{name}` is up {there}, and would be brought up {here} too",
        hint or f"`jobctl down {name}` first; its checkpoints stay",
    )
