"""Containers that a script starts for commands to come: those of `docker exec`, and those typed into its shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jobctl.jobspec.importers.notes import to_check
from jobctl.jobspec.importers.start_command import StartCommand

_SHELLS = ("bash", "sh", "zsh")


def in_containers(launches: Sequence[StartCommand]) -> list[StartCommand]:
    """Return the commands, each in its container; without the containers that only wait for others."""
    found: list[StartCommand] = []
    started: list[StartCommand] = []
    used: list[StartCommand] = []
    typed: StartCommand | None = None
    shell: StartCommand | None = None  # of `docker exec`, into which commands are typed there
    for launch in launches:
        container = _named(launch.executed_in, launch, started)
        if launch.container is not None:
            started.append(launch)
            typed, shell = (launch, None) if _is_shell(launch) else (typed, shell)
            found.append(launch)
        elif launch.executed_in is not None and _is_shell(launch):
            typed, shell = container or typed, launch
        elif launch.executed_in is not None and container is None:
            found.append(_in_an_unknown(launch, launch.executed_in))
        elif container is not None or (typed is not None and not launch.remote):
            outer = container or typed
            assert outer is not None
            inner = _inside(launch, outer, shell if container is None else None)
            found.append(inner if container is not None else _typed(inner, outer))
            used.append(outer)
        elif shell is not None and not launch.remote:  # in a container that the script does not start
            found.append(_typed(_in_an_unknown(_inside(launch, shell, shell), shell.executed_in), shell))
        else:
            found.append(launch)
    return [launch for launch in found if not (launch in used and _waits(launch))]


def _inside(launch: StartCommand, outer: StartCommand, shell: StartCommand | None) -> StartCommand:
    """Return a command in its container, with what that has, and what `docker exec` gives to the shell that it is typed into."""
    env, files = (shell.env, shell.env_files) if shell is not None else ({}, ())
    return replace(
        launch, container=outer.container, env={**outer.env, **env, **launch.env}, env_files=(*files, *launch.env_files)
    )


def _in_an_unknown(launch: StartCommand, container: str | None) -> StartCommand:
    return launch.noting(f"docker exec {container}", "jobctl makes its own containers: set `image`")


def _typed(launch: StartCommand, outer: StartCommand) -> StartCommand:
    said = f"{outer.where}`{outer.told}`: what follows is taken to be typed into it"
    return replace(launch, notes=(*launch.notes, to_check(said)))


def _named(name: str | None, launch: StartCommand, started: Sequence[StartCommand]) -> StartCommand | None:
    """Return the container that is called `name`, on the host of the command if it is on several."""
    alike = [one for one in started if one.container is not None and name and one.container.option("--name") == name]
    here = [one for one in alike if one.hosts == launch.hosts]
    return next(iter(here or alike), None)


def _is_shell(launch: StartCommand) -> bool:
    """Say whether somebody types into it."""
    return launch.head in _SHELLS and len(launch.argv) == 1


def _waits(launch: StartCommand) -> bool:
    return not launch.argv or launch.head in ("sleep", "tail") or _is_shell(launch)
