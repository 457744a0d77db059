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
    for launch in launches:
        container = _named(launch.executed_in, launch, started)
        if launch.container is not None:
            started.append(launch)
            typed = launch if _is_shell(launch) else typed
            found.append(launch)
        elif launch.executed_in is not None and _is_shell(launch):
            typed = container or typed
        elif launch.executed_in is not None and container is None:
            found.append(
                launch.noting(f"docker exec {launch.executed_in}", "jobctl makes its own containers: set `image`")
            )
        elif container is not None or (typed is not None and not launch.remote):
            outer = container or typed
            assert outer is not None
            inner = _inside(launch, outer)
            if container is None:
                said = f"{outer.where}`{outer.told}`: what follows is taken to be typed into it"
                inner = replace(inner, notes=(*inner.notes, to_check(said)))
            found.append(inner)
            used.append(outer)
        else:
            found.append(launch)
    return [launch for launch in found if not (launch in used and _waits(launch))]


def _inside(launch: StartCommand, outer: StartCommand) -> StartCommand:
    return replace(launch, container=outer.container, env={**outer.env, **launch.env})


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
