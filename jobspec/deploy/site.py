"""A job's place on one host: its files below the work directory there, and its containers in the host's engine.

The work directory is `DIR/HOST/JOB`: below a folder per host, so that a home that hosts share over NFS is fine. Locks
and secrets lie in it only where it is on storage of the host's own (`own`). What runs is read from the engine by
labels, what launchers say from their reports.
"""

from __future__ import annotations

import io
import json
import math
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from jobctl.jobspec.deploy.engine import docker_command, engine
from jobctl.jobspec.deploy.fanout import fan_out
from jobctl.jobspec.deploy.transport import HostError, Result, Transport, checked, problem, put
from jobctl.jobspec.render.artefact import Artefact, folder
from jobctl.jobspec.spec.hosts import Host

Json = dict[str, Any]
STARTING = 600.0  # seconds of silence that starting a container may take
FIRST_ANSWER = 15.0  # seconds in which a host that let us in does the simplest thing, or hangs


@dataclass(frozen=True, slots=True)
class SeenContainer:
    """A container of the job, as its host's engine tells. `artefact` is the hash of what it was started from."""

    node: int
    role: str
    id: str
    running: bool
    artefact: str | None
    owner: str | None
    image: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is on one host of a job: its containers, the control file, the ledger, and each node's report."""

    containers: tuple[SeenContainer, ...]
    control: Json | None
    ledger: Json | None
    reports: Mapping[int, Json]
    supervised: bool = False
    directories: frozenset[int] = field(default_factory=frozenset)  # nodes that have one
    there: bool = False  # whether the job has a work directory


class Site:
    """One host of one job. Every method raises HostError, and says what the host could not do."""

    def __init__(self, host: Host, transport: Transport, job: str, target: Literal["compose", "ssh"]) -> None:
        self.host, self.transport, self.job, self.target = host, transport, job, target
        # Not functools.cached_property: up to Python 3.11 that lets one instance at a time look, of all hosts.
        self._client: Any = None
        self._directories: tuple[PurePosixPath, PurePosixPath] | None = None

    @property
    def folder(self) -> str:
        """The name of the host's folder below its work directories."""
        return folder(self.host.name)

    @property
    def docker(self) -> tuple[str, ...]:
        """How `docker` is called there."""
        return docker_command(self.host.docker)

    @property
    def client(self) -> Any:
        """The host's engine."""
        if self._client is None:
            self._client = engine(self.transport, self.docker)
        return self._client

    @property
    def _place(self) -> tuple[PurePosixPath, PurePosixPath]:
        """The work directory, and where what must be the host's own lies."""
        if self._directories is None:
            self._directories = self._find()
        return self._directories

    @property
    def place(self) -> list[str]:
        """What FIND has to know."""
        return [self.host.dir, self.folder, self.job]

    def found(self, work: str, own: str) -> None:
        """Take note of where the job's directories are, which another command has found out."""
        self._directories = PurePosixPath(work), PurePosixPath(own)

    def _find(self) -> tuple[PurePosixPath, PurePosixPath]:
        argv = ["sh", "-c", _PLACE, "sh", *self.place]
        lines = checked(self.transport, argv, "find the work directory", timeout=FIRST_ANSWER).decode().splitlines()
        return PurePosixPath(lines[-2]), PurePosixPath(lines[-1])

    @property
    def work(self) -> PurePosixPath:
        """The job's work directory on the host, absolute."""
        return self._place[0]

    @property
    def own(self) -> PurePosixPath:
        """Where the job's locks and secrets lie, on storage of the host's own: the work directory, unless it is shared."""
        return self._place[1]

    # Looking.

    def observe(self) -> Seen:
        """Read what is there: one command for the files, one request to the engine."""
        # The engine first: a report that was read before its container ended would look like a launcher that was killed.
        containers = self.containers()
        files, supervised = self._files()
        reports = {
            node: data
            for path, data in files.items()
            if path.name == "report.json" and (node := _node(path)) is not None and data is not None
        }
        nodes = frozenset(node for path in files if (node := _node(path)) is not None)
        run = PurePosixPath("run")
        control, ledger = files.get(run / "control.json"), files.get(run / "ledger.json")
        return Seen(containers, control, ledger, reports, supervised, nodes, PurePosixPath() in files)

    def containers(self) -> tuple[SeenContainer, ...]:
        """Return the job's containers, running or not, in order of their nodes."""
        try:
            found = self.client.containers(all=True, filters={"label": f"jobctl.job={self.job}"})
        except Exception as error:
            raise self.engine_failed(error) from error
        return tuple(sorted((_seen(container) for container in found), key=lambda seen: (seen.node, seen.id)))

    def engine_failed(self, error: Exception) -> HostError:
        """Return why the engine did not answer; it is dialled anew the next time."""
        from jobctl.jobspec.deploy.engine import diagnose

        self._client = None
        return error if isinstance(error, HostError) else diagnose(self.transport, self.docker, str(error))

    def _files(self) -> tuple[dict[PurePosixPath, Json | None], bool]:
        """Return the files that say how the job does, and whether a supervisor holds its lock there.

        A file that is being replaced just now is left out, as are all if there are none.
        """
        argv = ["sh", "-c", _OBSERVE, "sh", *self.place]
        packed = self.transport.run(argv, timeout=FIRST_ANSWER)
        if packed.code not in (0, _SUPERVISED):
            raise problem(self.host.name, "read the work directory", packed)
        found: dict[PurePosixPath, Json | None] = {}
        with suppress(tarfile.TarError, EOFError), tarfile.open(fileobj=io.BytesIO(packed.out)) as archive:
            for member in archive:
                if member.isdir():
                    found[PurePosixPath(member.name)] = None
                file = archive.extractfile(member) if member.isfile() else None
                with suppress(ValueError):
                    data = json.loads(file.read()) if file else None
                    if isinstance(data, dict):
                        found[PurePosixPath(member.name)] = data
        return found, packed.code == _SUPERVISED

    # Changing.

    def send(self, artefacts: Iterable[Artefact], directories: Sequence[str], *, secrets: bool = False) -> None:
        """Put files below the work directory, each whole, and make `directories` there.

        Without `secrets` those of an earlier run are removed.
        """
        packed = _pack(artefacts)
        stale = "" if secrets else str(self.own / "secrets")
        argv = ["sh", "-c", _SEND, "sh", str(self.work), str(len(packed)), stale, *directories]
        checked(self.transport, argv, f"write into {self.work}", packed)

    def send_secrets(self, secrets: Mapping[str, str]) -> None:
        """Put the values of secrets into a 0600 file on the host's own storage."""
        if secrets:
            path = self.own / "secrets" / "secrets.json"
            put(self.transport, str(path), json.dumps(dict(secrets)).encode(), 0o600)
            checked(self.transport, ["sh", "-c", _LINK_SECRETS, "sh", str(self.own), str(self.work)], f"write {path}")

    def hand_over(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Replace one file of the run: the control file, or the ledger."""
        put(self.transport, str(self.work / "run" / name), content, mode)

    def begin(self, ledger: bytes, control: bytes) -> None:
        """Replace the ledger, then the control file, which launchers follow."""
        argv = ["sh", "-c", _BEGIN, "sh", str(self.work / "run"), str(len(ledger)), str(len(ledger) + len(control))]
        checked(self.transport, argv, f"write into {self.work / 'run'}", ledger + control)

    def announce(self, node: int, report: Json | None) -> None:
        """Say in a dead launcher's report that a new one is on its way; which generation it began, stays."""
        if report is not None:
            new = {**report, "state": "launching", "launcher": {}, "failure": None, "reason": None}
            put(self.transport, str(self.work / f"node-{node}" / "report.json"), json.dumps(new).encode(), 0o644)

    def start(self, node: int) -> None:
        """Start the container of `node` as its artefact says; one that runs from the same artefact stays."""
        user = _user(self.host.docker)
        if self.target == "ssh":
            argv = [*user, "sh", str(self.work / f"node-{node}.sh")]
        else:
            file = str(self.work / "compose.yaml")
            words = [*self.docker, "compose", "-f", file, "up", "-d", "--no-recreate", "--quiet-pull", f"node-{node}"]
            argv = ["sh", "-c", 'JOBCTL_USER="$(id -u):$(id -g)" exec "$@"', "sh", *words]
        wait = ["sh", "-c", _START, "sh", str(self.work / f"node-{node}" / "report.json"), *argv]
        result = self.transport.run(wait, timeout=STARTING)
        if result.code != 0:
            raise self.cannot_start(f"start node {node}", result)

    def cannot_start(self, what: str, result: Result) -> HostError:
        """Return why a container could not be started, with the remedy where the cause is a common one."""
        text = result.err.decode("utf-8", "replace")
        for sign, code, hint in _START_CAUSES:
            line = next((line.strip() for line in text.splitlines() if sign in line), None)
            if line is not None:
                return HostError(self.host.name, code, f"cannot {what}: {line}", hint)
        return HostError(self.host.name, "cannot-start", f"cannot {what}: {result.words}", None)

    def run_script(self, script: bytes, timeout: float = STARTING) -> Result:
        """Run a shell script there whose `docker` is the host's."""
        argv = [*_user(self.host.docker), "sh", "-c", script.decode("utf-8", "surrogateescape")]
        return self.transport.run(argv, timeout=timeout)

    def interact_script(self, script: bytes) -> int:
        """Run a shell script there whose `docker` is the host's, with the terminal; return its exit code."""
        return self.transport.interact(
            [*_user(self.host.docker), "sh", "-c", script.decode("utf-8", "surrogateescape")]
        )

    def end(self, node: int, grace: float) -> None:
        """Stop the containers of `node` (SIGTERM, `grace` seconds, SIGKILL), and remove them."""
        found = [seen for seen in self.containers() if seen.node == node]
        self.stop_containers(found, grace)
        self.remove_containers(found)

    def stop_containers(self, containers: Sequence[SeenContainer], grace: float) -> None:
        """Stop those that run, side by side: SIGTERM, `grace` seconds, SIGKILL."""
        running = [seen for seen in containers if seen.running]
        outcome = fan_out(running, lambda seen: self._ask(lambda: self.client.stop(seen.id, timeout=math.ceil(grace))))
        for error in outcome.failed.values():
            raise error

    def remove_containers(self, containers: Sequence[SeenContainer]) -> None:
        """Remove containers, whether they run or not."""
        for seen in containers:
            self._ask(partial(self.client.remove_container, seen.id, force=True))

    def _ask(self, request: Callable[[], object]) -> None:
        """Ask the engine to do something to a container; one that is gone, or on its way, is fine."""
        from docker.errors import APIError, NotFound

        try:
            request()
        except NotFound:
            return
        except APIError as error:
            if "already in progress" not in str(error):
                raise HostError(
                    self.host.name, "engine-refused", f"its engine refuses: {error.explanation or error}"
                ) from error
        except Exception as error:
            raise self.engine_failed(error) from error

    def last_words(self, container: SeenContainer) -> tuple[int | None, str]:
        """Return the exit code of a container and the last lines that it printed itself."""
        try:
            state = self.client.inspect_container(container.id)["State"]
            text = self.client.logs(container.id, tail=5).decode("utf-8", "replace").strip()
        except Exception as error:
            raise self.engine_failed(error) from error
        return state.get("ExitCode"), text or state.get("Error") or ""

    def forget(self, node: int) -> None:
        """Remove what is left of a node that belongs elsewhere now."""
        self.remove([str(self.work / f"node-{node}"), str(self.work / f"node-{node}.sh")], images=())

    def erase(self, images: Sequence[str] = ()) -> None:
        """Remove the work directory, and the folders above it that are empty then.

        Containers write into it, as root often: where the user may not remove that, a container of one of `images` does.
        """
        self.remove([str(self.work), str(self.own)], images)
        argv = ["sh", "-c", 'for d do rmdir -p -- "$(dirname -- "$d")" 2>/dev/null; done; :', "sh"]
        checked(self.transport, [*argv, str(self.work), str(self.own)], f"remove {self.work}")

    def remove(self, paths: Sequence[str], images: Sequence[str]) -> None:
        """Remove files and folders."""
        result = self.transport.run(["rm", "-rf", "--", *paths])
        if result.code == 0:
            return
        for image in dict.fromkeys(images):
            if self._remove_as_root(paths, image):
                result = self.transport.run(["rm", "-rf", "--", *paths])
                if result.code == 0:
                    return
        error = problem(self.host.name, f"remove {paths[0]}", result)
        raise HostError(
            self.host.name, error.code, error.cause, f"`sudo rm -rf {paths[0]}` there: containers wrote it as root"
        )

    def _remove_as_root(self, paths: Sequence[str], image: str) -> bool:
        """Empty folders by a container; say whether that went well."""
        from docker.errors import APIError

        name = f"jobctl-{self.job}-erase"
        try:
            there = [p for p in paths if self.transport.run(["test", "-d", p]).code == 0]
            config = self.client.create_host_config(
                binds=[f"{path}:/erase/{number}" for number, path in enumerate(there)],
                network_mode="none",
                auto_remove=False,
            )
            script = "find /erase -mindepth 2 -delete"
            made = self.client.create_container(
                image, ["sh", "-c", script], name=name, user="0:0", entrypoint=[], host_config=config
            )
            try:
                self.client.start(made["Id"])
                return bool(self.client.wait(made["Id"])["StatusCode"] == 0)
            finally:
                self.client.remove_container(made["Id"], force=True)
        except APIError:
            return False

    # What it leaves behind.

    def collect(self, into: Path) -> int:
        """Copy the nodes' logs, which rank wrote which, and the outputs below `into`; return how many files that were."""
        argv = ["sh", "-c", _COLLECT, "sh", str(self.work)]
        channel = self.transport.dial(argv)
        try:
            channel.settimeout(STARTING)
            count = 0
            reader: Any = _Reader(channel)
            with tarfile.open(fileobj=reader, mode="r|") as archive:
                for member in archive:
                    if member.isfile():
                        archive.extract(self._placed(member), into, filter="data")
                        count += 1
            return count
        except tarfile.ReadError:
            return 0  # nothing there
        except (OSError, EOFError) as error:
            raise HostError(
                self.host.name, "lost", f"the connection was lost while its logs were read: {error}"
            ) from error
        finally:
            channel.close()

    def _placed(self, member: tarfile.TarInfo) -> tarfile.TarInfo:
        """Outputs of several hosts lie beside each other, each below its host's name; a node's logs are its own."""
        head, slash, rest = member.name.partition("/")
        return (
            member.replace(name=f"outputs/{folder(self.host.name)}/{rest}") if head == "outputs" and slash else member
        )


class _Reader:
    """A channel as a file that can be read."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0:
            data = self.channel.recv(min(size, 65536))
            if not data:
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts)


def _node(path: PurePosixPath) -> int | None:
    """Return the node whose directory `path` is or lies in, None for what is no node's."""
    first = path.parts[0] if path.parts else ""
    return int(first[5:]) if first.startswith("node-") and first[5:].isdigit() else None


_SUPERVISED = 76

# Finds the work directory (`~` is the home), and where what must be the host's own lies.
FIND = """\
case $1 in
"~") work=$HOME ;;
"~/"*) work=$HOME/${1#"~/"} ;;
/*) work=$1 ;;
*) work=$HOME/$1 ;;
esac
at=$work
while [ ! -d "$at" ]; do at=$(dirname -- "$at"); done
work=$work/$2/$3
case $(stat -f -c %T -- "$at" 2>/dev/null) in
""|ext*|xfs|btrfs|zfs|f2fs|jfs|reiserfs|overlay*|tmpfs|ramfs) own=$work ;;
*) own=/var/tmp/jobctl-$(id -u)/$2/$3 ;;
esac
"""
_PLACE = FIND + 'printf \'%s\\n\' "$work" "$own"\n'
_OBSERVE = (
    FIND
    + f"""\
cd -- "$work" 2>/dev/null || exit 0
set -- . run/*.json node-*/report.json
for node in node-*/; do set -- "$@" "$node"; done
tar --no-recursion -cf - -- "$@" 2>/dev/null
[ ! -s "$own/supervisor.lock" ] || flock -n "$own/supervisor.lock" true 2>/dev/null || exit {_SUPERVISED}
:
"""
)

# Starts, and stays until the launcher reports, 5 s at most: it saves a look or two, and is no error if it does not.
_START = """\
report=$1; shift; "$@" || exit
tries=50
while [ $tries -gt 0 ]; do
  [ ! -s "$report" ] || grep -q '"state": "launching"' "$report" || exit 0
  sleep 0.1; tries=$((tries - 1))
done
"""

# Writes two files from stdin, the first $2 of all $3 bytes and the rest, each whole, in this order.
_BEGIN = """\
set -eu; umask 077
cd -- "$1"; new=$(mktemp -d "$1/.jobctl.XXXXXX"); trap 'rm -rf -- "$new"' EXIT
cat > "$new/all"
[ "$(wc -c < "$new/all")" -eq "$3" ] || { echo "the connection broke off" >&2; exit 1; }
head -c "$2" "$new/all" > "$new/ledger.json"; tail -c "+$(($2 + 1))" "$new/all" > "$new/control.json"
chmod 644 "$new/control.json"
mv -f -- "$new/ledger.json" .; mv -f -- "$new/control.json" .
"""

_COLLECT = """\
cd -- "$1" 2>/dev/null || exit 0
set --
for part in node-*/logs node-*/processes outputs; do [ ! -e "$part" ] || set -- "$@" "$part"; done
[ $# -eq 0 ] || exec tar -cf - -- "$@"
"""

# The containers' mount is below the work directory; where the secrets lie elsewhere, a link leads there.
_LINK_SECRETS = """\
set -eu
chmod 700 "$1/secrets"
[ "$1" = "$2" ] || { rm -rf -- "$2/secrets"; ln -s -- "$1/secrets" "$2/secrets"; }
"""

# Unpacks the tar on stdin (all $2 bytes of it, or nothing) beside the directory $1, then moves its files there.
_SEND = """\
set -eu; umask 022
work=$1 size=$2 stale=$3; shift 3
[ -z "$stale" ] || [ ! -e "$stale" ] || rm -rf -- "$stale" "$work/secrets"
if [ ! -d "$work" ]; then
  top=${work%/*/*}
  [ -d "$top" ] || (umask 077; mkdir -p -- "$top")
  mkdir -p -- "$work"
fi
chmod 711 "$work"; cd -- "$work"
[ $# -eq 0 ] || mkdir -p -- "$@"
new=$(mktemp -d "$work/.jobctl.XXXXXX"); trap 'rm -rf -- "$new"' EXIT
cat > "$new/.tar"
[ "$(wc -c < "$new/.tar")" -eq "$size" ] || { echo "the connection broke off" >&2; exit 1; }
tar -C "$new" -xpf "$new/.tar"
set -- "$new"/*; [ ! -e "$1" ] || mv -f -- "$@" .
"""


def _user(docker: str | None) -> list[str]:
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
        image=container.get("ImageID") or container.get("Image") or "",
    )


_START_CAUSES = (
    ("is not a docker command", "compose-missing", "install the Compose plugin there, or use `--target ssh`"),
    ("unknown shorthand flag", "compose-missing", "install the Compose plugin there, or use `--target ssh`"),
    ("No such image", "image-missing", "`pull: missing` pulls it; or load it there with `docker load`"),
    (
        "pull access denied",
        "image-refused",
        "is the name right? `docker login` here, or load it there with `docker load`",
    ),
    (
        "executable file not found",
        "python-missing",
        "the image has no such interpreter: `container.python` names another",
    ),
    ("[FATAL tini", "python-missing", "the image has no such interpreter: `container.python` names another"),
    ("could not select device driver", "no-gpu-runtime", "install the NVIDIA Container Toolkit there"),
    ("bind source path does not exist", "no-such-path", "make it there: jobctl creates nothing in its place"),
    (
        "error setting rlimit",
        "ulimit-refused",
        "its engine may not raise limits: set `resources.ulimits` (`memlock`) lower",
    ),
    ("No space left on device", "disk-full", "make room where Docker keeps its data (`docker system df`)"),
)
