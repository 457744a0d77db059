"""`jobctl data`: the data that hosts keep between jobs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from jobctl import console
from jobctl.options import AcceptNew, Format, Hosts, Output, SshConfig
from jobctl.views.failure import Failed, command

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.sending.kept_data import KeptData
    from jobctl.jobspec.operations.inspect.data import DataOnHosts


class Action(StrEnum):
    """What to do with it."""

    list = "list"
    remove = "remove"


@command
def data(
    action: Annotated[Action, typer.Argument(help="Show the data, or remove it.")] = Action.list,
    names: Annotated[
        Optional[list[str]],  # noqa: UP045  (typer reads the annotation at run time)
        typer.Argument(
            metavar="NAME", help="NAME or NAME/VERSION to remove; default: all that no job has.", show_default=False
        ),
    ] = None,
    hosts: Hosts = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing.")] = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """List or remove the data that hosts keep between jobs.

    Jobs with the key `data` bring it there. Data that a container of a job mounts is not removed.

    Example: jobctl data remove --hosts hosts.txt
    """
    from jobctl.jobspec.operations.inspect.data import DataHosts, choose
    from jobctl.jobspec.operations.resolve.job import Reached

    if names and action is Action.list:
        raise Failed("`data list` shows all data of the hosts", 2, "leave the names out")
    there = DataHosts(hosts or _default_hosts(), Reached(ssh_config=ssh_config, accept_new=accept_new))
    found = there.list()
    if action is Action.remove:
        chosen = choose(found, names or ()) if found.hosts else {}  # else nobody knows what there is
        if any(chosen.values()) and not yes:
            _confirm(chosen)
        done = there.remove(chosen)
        _show(type(found)(done.hosts, {**found.failed, **done.failed}), output, "removed nothing", "removed")
    else:
        _show(found, output, "these hosts keep no data", None)


def _default_hosts() -> Path:
    """Return the user's default hosts file, and say that it counts. Ends with 2 if there is none."""
    from jobctl.jobspec.operations.resolve.settings import default_hosts

    default = default_hosts()
    if default.value is None:
        raise Failed("`data` looks at hosts, and none are named", 2, "name them: `--hosts hosts.txt`")
    console.say(f"hosts: {default.value} (default, from {default.place})")
    return default.value


def _confirm(chosen: Mapping[str, Sequence[KeptData]]) -> None:
    """Ask whether to go on. Ends with 2 if nobody can answer, or the answer is no."""
    if not sys.stdin.isatty():
        raise Failed("`data remove` removes data for good, and asks before that", 2, "`--yes` where nobody can answer")
    console.say(console.table(_HEAD, _rows(chosen)))
    if not typer.confirm("remove this data?", err=True):
        raise Failed("nothing was removed", 2)


def _show(found: DataOnHosts, output: Format, nothing: str, verb: str | None) -> None:
    """Print data. Ends with 3 if no host answered, 4 if some did not."""
    from jobctl.jobspec.operations.errors import failures_json
    from jobctl.views.outcome import tell_failures

    if output is Format.json:
        rows = [{"host": host, "data": [_json(one) for one in data]} for host, data in found.hosts.items()]
        console.out_json({"hosts": rows, "failed_hosts": failures_json(found.failed)})
    elif any(found.hosts.values()):
        if verb is not None:
            console.say(f"{verb}:")
        console.out(console.table(_HEAD, _rows(found.hosts)))
    elif found.hosts or not found.failed:
        console.say(nothing)
    tell_failures(found.failed)
    if found.failed:
        raise Failed("", 4 if found.hosts else 3)


_HEAD = ("HOST", "DATA", "VERSION", "SIZE", "LAST USED", "JOBS")


def _rows(hosts: Mapping[str, Sequence[KeptData]]) -> list[tuple[str, ...]]:
    from jobctl.jobspec.launcher.telling.words import megabytes
    from jobctl.jobspec.operations.inspect.as_json import timestamp

    return [
        (host, one.name, one.version, megabytes(one.size), timestamp(one.last_used) or "-", ",".join(one.jobs) or "-")
        for host, data in hosts.items()
        for one in data
    ]


def _json(one: KeptData) -> dict[str, Any]:
    from jobctl.jobspec.operations.inspect.as_json import timestamp

    return {
        "name": one.name,
        "version": one.version,
        "bytes": one.size,
        "last_used": timestamp(one.last_used),
        "jobs": list(one.jobs),
    }
