"""A job's place on one host: its files below the work directory there, and its containers in the host's engine.

The work directory is `DIR/HOST/JOB`: below a folder per host, so that a home that hosts share over NFS is fine. Secrets
lie on storage of the host's own. What runs is read from the engine by labels, what launchers say from their reports.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Literal

from jobctl.jobspec.deploy.engine import docker_command, engine
from jobctl.jobspec.deploy.transport import HostError, Result, Transport, checked, problem, put
from jobctl.jobspec.render.artefact import Artefact, folder
from jobctl.jobspec.spec.hosts import Host

Json = dict[str, Any]
STARTING = 600.0  # seconds of silence that `docker compose up` may take: it may have to pull


@dataclass(frozen=True, slots=True)
class SeenContainer:
    """A container of the job, as its host's engine tells. `artefact` is the hash of what it was started from."""

    node: int
    role: str
    id: str
    running: bool
    artefact: str | None
    owner: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is on one host of a job: its containers, the control file, the ledger, and each node's report."""

    containers: tuple[SeenContainer, ...]
    control: Json | None
    ledger: Json | None
    reports: Mapping[int, Json]


class Site:
    """One host of one job. Every method raises HostError, and says what the host could not do."""

    def __init__(self, host: Host, transport: Transport, job: str, target: Literal["compose", "ssh"]) -> None:
        self.host, self.transport, self.job, self.target = host, transport, job, target

    @cached_property
    def docker(self) -> tuple[str, ...]:
        """How `docker` is called there."""
        return docker_command(self.host.docker)

    @cached_property
    def client(self) -> Any:
        """The host's engine."""
        return engine(self.transport, self.docker)

    @cached_property
    def work(self) -> PurePosixPath:
        """The job's work directory on the host, absolute."""
        given = PurePosixPath(self.host.dir)
        if given.parts[:1] == ("~",):
            home = checked(self.transport, ["sh", "-c", 'printf %s "$HOME"'], "find the home directory").decode()
            given = PurePosixPath(home, *given.parts[1:])
        return given / folder(self.host.name) / self.job

    # Looking.

    def observe(self) -> Seen:
        """Read what is there: one command for the files, one request to the engine."""
        files = self._files()
        reports = {
            int(path.parts[0][5:]): data
            for path, data in files.items()
            if path.name == "report.json" and path.parts[0][5:].isdigit()
        }
        run = PurePosixPath("run")
        return Seen(self.containers(), files.get(run / "control.json"), files.get(run / "ledger.json"), reports)

    def containers(self) -> tuple[SeenContainer, ...]:
        """Return the job's containers, running or not, in order of their nodes."""
        found = self.client.containers(all=True, filters={"label": f"jobctl.job={self.job}"})
        return tuple(sorted((_seen(container) for container in found), key=lambda seen: (seen.node, seen.id)))

    def _files(self) -> dict[PurePosixPath, Json]:
        """Return the JSON files that say how the job does; a file that is being replaced just now is left out."""
        script = (
            'cd -- "$1" 2>/dev/null || exit 0; set -- run/*.json node-*/report.json; tar -cf - -- "$@" 2>/dev/null; :'
        )
        packed = self.transport.run(["sh", "-c", script, "sh", str(self.work)])
        if packed.code != 0:
            raise problem(self.host.name, f"read {self.work}", packed)
        found: dict[PurePosixPath, Json] = {}
        with suppress(tarfile.TarError, EOFError), tarfile.open(fileobj=io.BytesIO(packed.out)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                with suppress(ValueError):
                    data = json.loads(file.read()) if file else None
                    if isinstance(data, dict):
                        found[PurePosixPath(member.name)] = data
        return found

    # Changing.

    def send(self, artefacts: Iterable[Artefact], directories: Sequence[str]) -> None:
        """Put files below the work directory, each whole, and make `directories` there."""
        packed = _pack(artefacts)
        argv = ["sh", "-c", _SEND, "sh", str(self.work), str(len(packed)), *directories]
        checked(self.transport, argv, f"write into {self.work}", packed)

    def hand_over(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Replace one file of the run: the control file, or the ledger."""
        put(self.transport, str(self.work / "run" / name), content, mode)

    def start(self, node: int) -> None:
        """Start the container of `node` as its artefact says; one that runs from the same artefact stays."""
        if self.target == "ssh":
            argv = [*_environment(self.host.docker), "sh", str(self.work / f"node-{node}.sh")]
        else:
            file = str(self.work / "compose.yaml")
            argv = [*self.docker, "compose", "-f", file, "up", "-d", "--no-recreate", "--quiet-pull", f"node-{node}"]
        result = self.transport.run(argv, timeout=STARTING)
        if result.code != 0:
            raise _cannot_start(self.host.name, node, result)

    def end(self, node: int, grace: float) -> None:
        """Stop the containers of `node` (SIGTERM, `grace` seconds, SIGKILL), and remove them."""
        from docker.errors import NotFound

        for seen in self.containers():
            if seen.node == node:
                with suppress(NotFound):
                    self.client.stop(seen.id, timeout=int(grace))
                    self.client.remove_container(seen.id, force=True)

    def erase(self) -> None:
        """Remove the work directory; containers write into it as root, so one of them does it where the user may not."""
        argv = ["sh", "-c", 'rm -rf -- "$1" && rmdir -p -- "$(dirname -- "$1")" 2>/dev/null; [ ! -e "$1" ]', "sh"]
        result = self.transport.run([*argv, str(self.work)])
        if result.code != 0:
            raise problem(self.host.name, f"remove {self.work}", result)


# Unpacks the tar on stdin (all $2 bytes of it, or nothing) beside the directory $1, then moves file by file into it.
_SEND = """\
set -eu; umask 077
work=$1 size=$2; shift 2
mkdir -p -- "$work"; cd -- "$work"
for name do mkdir -p -- "$name"; done
new=$(mktemp -d "$work/.jobctl.XXXXXX"); trap 'rm -rf -- "$new"' EXIT
cat > "$new/tar"
[ "$(wc -c < "$new/tar")" -eq "$size" ] || { echo "the connection broke off" >&2; exit 1; }
mkdir "$new/files"; tar -xpf "$new/tar" -C "$new/files"
cd "$new/files"
find . -type f | while IFS= read -r file; do
  mkdir -p -- "$work/$(dirname -- "$file")"; mv -f -- "$file" "$work/$file"
done
"""


def _environment(docker: str | None) -> list[str]:
    """Return what makes a script's plain `docker` mean the one of `docker=` in the hosts file."""
    if docker is None:
        return []
    return ["sudo", "-n"] if docker == "sudo" else ["env", f"DOCKER_HOST={docker}"]


def _pack(artefacts: Iterable[Artefact]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for artefact in artefacts:
            member = tarfile.TarInfo(artefact.path)
            member.size, member.mode = len(artefact.content), artefact.mode
            archive.addfile(member, io.BytesIO(artefact.content))
    return buffer.getvalue()


def _seen(container: Json) -> SeenContainer:
    labels = container.get("Labels") or {}
    return SeenContainer(
        node=int(labels.get("jobctl.node", -1)),
        role=labels.get("jobctl.role", "trainer"),
        id=container["Id"],
        running=container["State"] in ("running", "restarting", "paused"),
        artefact=labels.get("jobctl.spec"),
        owner=labels.get("jobctl.owner"),
    )


def _cannot_start(host: str, node: int, result: Result) -> HostError:
    text = result.err.decode("utf-8", "replace")
    for sign, code, hint in _START_CAUSES:
        line = next((line.strip() for line in text.splitlines() if sign in line), None)
        if line is not None:
            return HostError(host, code, f"cannot start node {node}: {line}", hint)
    return HostError(host, "cannot-start", f"cannot start node {node}: {result.words}", None)


_START_CAUSES = (
    ("is not a docker command", "compose-missing", "install the Compose plugin there, or use `--target ssh`"),
    ("unknown shorthand flag", "compose-missing", "install the Compose plugin there, or use `--target ssh`"),
    ("No such image", "image-missing", "`pull: missing` pulls it; or load it there with `docker load`"),
    (
        "pull access denied",
        "image-refused",
        "is the name right? `docker login` here, or load it there with `docker load`",
    ),
    ("could not select device driver", "no-gpu-runtime", "install the NVIDIA Container Toolkit there"),
    ("bind source path does not exist", "no-such-path", "make it there: jobctl creates nothing in its place"),
    (
        "error setting rlimit",
        "ulimit-refused",
        "its engine may not raise limits: set `resources.ulimits` (`memlock`) lower",
    ),
    ("No space left on device", "disk-full", "make room where Docker keeps its data (`docker system df`)"),
)
