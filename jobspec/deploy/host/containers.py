"""The containers of one job on one host: found by their labels, whatever became of files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.model.usage import NodeUsage, parse_stats
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.plan.artefact_id import INPUTS_LABEL, ArtefactId
from jobctl.jobspec.render.container import LAUNCHER, SPEC_LABEL, VERSION_LABEL


class Containers:
    """The containers of one job on one host. Every method raises HostError.

    `helper` is what `as_root` calls its container: of two commands with the same one, the second ends that of the first.
    """

    def __init__(self, engine: Engine, job: str, helper: str = "root") -> None:
        self.engine, self.job, self._helper = engine, job, helper

    def seen(self) -> tuple[SeenContainer, ...]:
        """Return them all, running or not, in order of their nodes."""
        found = self.engine.answer(self.engine.listed(f"jobctl.job={self.job}"), list)
        seen = (_seen(container) for container in found if isinstance(container, dict) and "Id" in container)
        return tuple(sorted(seen, key=lambda seen: (seen.node, seen.id)))

    def stop(self, containers: Sequence[SeenContainer], grace: float) -> None:
        """Stop those that run, side by side: SIGTERM, `grace` seconds, SIGKILL. One that has ended, or is gone, is fine.

        Nothing in a paused one hears SIGTERM; it is removed as it is.
        """
        from docker.errors import APIError, NotFound

        def stop(seen: SeenContainer) -> None:
            with self.engine.asked() as client, suppress(NotFound):
                try:
                    client.stop(seen.id, timeout=math.ceil(grace))
                except APIError as error:
                    if "is not running" not in str(error):  # it has ended in that moment
                        raise

        for error in fan_out([seen for seen in containers if seen.running and not seen.paused], stop).failed.values():
            raise error

    def kill(self, containers: Sequence[SeenContainer]) -> None:
        """End those that run at once; one that has ended meanwhile is fine."""
        from docker.errors import APIError

        for seen in containers:
            if seen.running:
                with self.engine.asked() as client, suppress(APIError):
                    client.kill(seen.id)

    def remove(self, containers: Sequence[SeenContainer]) -> None:
        """Remove containers, whether they run or not; one that is gone, or on its way, is fine."""
        for seen in containers:
            self.remove_one(seen.id)

    def remove_one(self, container: str) -> None:
        """Remove a container likewise, by its id or name."""
        from docker.errors import APIError, NotFound

        with self.engine.asked() as client, suppress(NotFound):
            try:
                client.remove_container(container, force=True)
            except APIError as error:
                if "already in progress" not in str(error):
                    raise

    def usage(self, container: str) -> NodeUsage:
        """Return what a container uses now; nothing of one that has ended."""
        from docker.errors import APIError

        with self.engine.asked() as client:
            try:
                return parse_stats(client.stats(container, stream=False, one_shot=True))
            except APIError:
                return parse_stats(None)

    def last_words(self, seen: SeenContainer) -> tuple[int | None, str]:
        """Return the exit code of a container and the last lines that it printed itself."""
        with self.engine.asked() as client:
            state = self.engine.answer(client.inspect_container(seen.id).get("State"), dict)
            text = client.logs(seen.id, tail=5).decode("utf-8", "replace").strip()
        return state.get("ExitCode"), text or state.get("Error") or ""

    def as_root(self, code: str, folders: Sequence[str], image: str, python: str, *args: str) -> bool:
        """Run Python code as root in a container of `image` that has `folders` at /at/0 …; say whether it went well."""
        from docker.errors import APIError, NotFound

        name, labels = f"jobctl-{self.job}-{self._helper}", self.engine.kind().security_options
        with self.engine.asked() as client:
            try:
                with suppress(NotFound):  # left by a command that was killed
                    client.remove_container(name, force=True)
                config = client.create_host_config(
                    binds=[f"{path}:/at/{number}" for number, path in enumerate(folders)],
                    network_mode="none",
                    security_opt=list(labels) or None,
                )
                made = client.create_container(
                    image,
                    [python, "-c", code, *args],
                    name=name,
                    labels={"jobctl.job": self.job, "jobctl.role": "root"},
                    user="0:0",
                    entrypoint=[],
                    host_config=config,
                )
                try:
                    client.start(made["Id"])
                    return bool(client.wait(made["Id"])["StatusCode"] == 0)
                finally:
                    client.remove_container(made["Id"], force=True)
            except APIError:
                return False


_SERVICE = re.compile(r"etcd-[0-9]{1,3}")  # a folder of this name is removed with the service


def labels_of(container: Any) -> dict[str, str]:
    """Return the labels of a container, as an engine tells of it; {} for one without."""
    labels = container.get("Labels") if isinstance(container, dict) else None
    if not isinstance(labels, dict):
        return {}
    return {str(name): value for name, value in labels.items() if isinstance(value, str)}


def _artefact(labels: Mapping[str, str]) -> ArtefactId | None:
    found = labels.get(SPEC_LABEL)
    return None if found is None else ArtefactId(found, labels.get(INPUTS_LABEL), labels.get(VERSION_LABEL))


_RUNNING = ("running", "restarting", "paused", "stopping")  # the last is Podman's: it was told to end, and has not


def _seen(container: dict[str, Any]) -> SeenContainer:
    labels = labels_of(container)
    name = labels.get("jobctl.node")
    node = number_in(name)
    python, _, rest = str(container.get("Command") or "").partition(" ")
    return SeenContainer(
        node=-1 if node is None else node,
        role=labels.get("jobctl.role", "trainer"),
        id=str(container["Id"]),
        running=container.get("State") in _RUNNING,
        paused=container.get("State") == "paused",
        artefact=_artefact(labels),
        owner=labels.get("jobctl.owner"),
        image=container.get("ImageID") or container.get("Image") or "",
        service=name if name is not None and _SERVICE.fullmatch(name) else None,
        restarting=container.get("State") == "restarting",
        python=python if rest.startswith(LAUNCHER) else "python3",
    )
