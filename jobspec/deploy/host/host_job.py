"""A job's place on one host: its files below the work directory there, and its containers in the host's engine.

The work directory is `DIR/HOST/JOB`: below a folder per host, so that a home that hosts share over NFS is fine. Locks
and secrets are in it only where it is on storage of the host's own (`own`). What runs is read from the engine by
labels, what launchers say from their reports.
"""

from __future__ import annotations

import io
import json
import shlex
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

from jobctl.jobspec.deploy.host.container_starter import STARTING, ContainerStarter
from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.host.directories import Directories, claim, find_directories, refuse_elsewhere
from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.scripts import SCRIPTS, python
from jobctl.jobspec.deploy.host.work_reader import SUPERVISED, WorkReader, files_in
from jobctl.jobspec.deploy.model.container import Interpreter, SeenContainer
from jobctl.jobspec.deploy.model.control import NOTHING, Control, Unreadable, parse_control
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.host_state import HostState
from jobctl.jobspec.deploy.model.report_reader import launching
from jobctl.jobspec.deploy.model.spare_state import SPARE, as_nodes
from jobctl.jobspec.deploy.model.untrusted import Json, as_text, number_in, parse_object
from jobctl.jobspec.deploy.store.files import Room
from jobctl.jobspec.deploy.transport.base import FIRST_ANSWER, Transport, checked, problem, put
from jobctl.jobspec.launcher.report.node_report import DECLARED_DEAD
from jobctl.jobspec.plan.types import Container
from jobctl.jobspec.render.artefact import Artefact, folder
from jobctl.jobspec.spec.hosts import Host

SPARE_REPORT = PurePosixPath(SPARE) / "report.json"  # of a launcher that waits to become a node
# The sticky bit of a file tells systemd-tmpfiles to leave it: else what lies in /var/tmp, and is read only when processes start,
# would be gone after 30 days.
STAYS = 0o1000
NOT_OURS = 77  # what erase.sh and remove.sh end with where a folder belongs to somebody else, or a link leads there
PREPARED = "prepared.json"  # in `run`: what a spare has


class HostJob:
    """One host of one job. Every method raises HostError, and says what the host could not do."""

    def __init__(
        self,
        host: Host,
        transport: Transport,
        job: str,
        target: Literal["compose", "ssh"],
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.host, self.transport, self.job, self.target, self.tell = host, transport, job, target, tell
        self.engine = Engine(transport, host.docker)
        self.containers = Containers(self.engine, job)
        # Not functools.cached_property: up to Python 3.11 that lets one instance at a time look, of all hosts.
        self._found_directories: Directories | None = None
        self._reader = WorkReader()
        self._parsed: tuple[Json | None, Json | None, Control] | None = (
            None  # control file and ledger, and what they say
        )
        self.starter = ContainerStarter(transport, target, self.engine)

    @property
    def folder(self) -> str:
        """The name of the host's folder below its work directories."""
        return folder(self.host.name)

    @property
    def docker(self) -> tuple[str, ...]:
        """How `docker` is called there."""
        return self.engine.command

    @property
    def _directories(self) -> Directories:
        """The work directory, and where what must be the host's own is. Raises OnAnotherMachine."""
        if self._found_directories is None:
            self._found_directories = find_directories(self.host, self.transport, self._place)
        refuse_elsewhere(self.host, self._found_directories)
        return self._found_directories

    @property
    def _place(self) -> list[str]:
        return [self.host.dir, self.folder, self.job]

    @property
    def place_arguments(self) -> list[str]:
        """What find.sh has to know. Raises OnAnotherMachine."""
        if self.host.local:
            _ = self._directories
        return self._place

    def use_directories(self, work: str, own: str) -> None:
        """Take note of where the job's directories are, which another command has found out."""
        self._found_directories = PurePosixPath(work), PurePosixPath(own)

    @property
    def work(self) -> PurePosixPath:
        """The job's work directory on the host, absolute."""
        return self._directories[0]

    @property
    def own(self) -> PurePosixPath:
        """Where the job's locks and secrets lie, on storage of the host's own: the work directory, unless it is shared."""
        return self._directories[1]

    # Looking.

    def observe(self, containers: tuple[SeenContainer, ...] | None = None) -> HostState:
        """Read what is there: one command for the files, one request to the engine, unless its `containers` are given."""
        # The engine first: a report that was read before its container ended would look like a launcher that was killed.
        containers = self.containers.seen() if containers is None else containers
        files, supervised, full = self._files()
        reports = {
            node: data
            for path, data in files.items()
            if path.name == "report.json" and (node := _node(path)) is not None and data is not None
        }
        spare = (files.get(SPARE_REPORT) or {}) if SPARE_REPORT.parent in files else None
        # Where a launcher may become any node, all have a folder already.
        nodes = frozenset(n for path in files if (n := _node(path)) is not None and (spare is None or n in reports))
        containers = as_nodes(containers, reports, spare)
        run = PurePosixPath("run")
        prepared = as_text((files.get(run / PREPARED) or {}).get("version"))
        there = PurePosixPath() in files
        also = {"prepared": prepared, "full": full, "spare": spare}
        seen = HostState(containers, NOTHING, reports, supervised, nodes, there, **also)  # type: ignore[arg-type]
        try:
            return replace(seen, control=self._control(files))
        except HostError as error:
            return replace(seen, unreadable=error)

    def look_on(self) -> None:
        """From now on, look at the files through a script that stays on the host."""
        self._reader.look_on()

    def _files(self) -> tuple[dict[PurePosixPath, Json | None], bool, bool]:
        """Return the files that say how the job does, whether a supervisor holds its lock there, and whether the disk is full."""
        if self._found_directories is None and not self._reader.looks_on and not self.host.local:
            packed = self.transport.run(SCRIPTS.argv("find_and_observe", *self.place_arguments), timeout=FIRST_ANSWER)
        else:
            packed = self._reader.read(self.transport, str(self.work), str(self.own))
        if packed.code not in (0, SUPERVISED):
            raise problem(self.host.name, "read the work directory", packed)
        full = is_full(packed.err.decode("utf-8", "replace"))
        return files_in(packed.out), packed.code == SUPERVISED, full

    def control(self) -> Control:
        """Read control file and ledger only; the engine is not asked."""
        return self._control(self._files()[0])

    def _control(self, files: Mapping[PurePosixPath, Json | None]) -> Control:
        run = PurePosixPath("run")
        generation, ledger = files.get(run / "control.json"), files.get(run / "ledger.json")
        if self._parsed is not None and self._parsed[0] is generation and self._parsed[1] is ledger:
            return self._parsed[2]
        try:
            self._parsed = generation, ledger, parse_control(generation, ledger)
            return self._parsed[2]
        except Unreadable as bad:
            place = str(self.work / run)
            hint = "use the version that brought the job up; `jobctl down` takes it down all the same"
            raise HostError(self.host.name, "unreadable", bad.error(place), hint) from bad

    # Changing.

    def send(self, artefacts: Iterable[Artefact], directories: Sequence[str], *, secrets: bool = False) -> None:
        """Put files below the work directory, each whole, and make `directories` there.

        Without `secrets` those of an earlier run are removed.
        """
        packed = _pack(artefacts)
        stale = "" if secrets else str(self.own / "secrets")
        argv = SCRIPTS.argv("send", str(self.work), str(len(packed)), stale, *directories)
        checked(self.transport, argv, f"write into {self.work}", packed)
        claim(self.host, self.transport, self._directories)

    def has(self, path: str) -> bool:
        """Say whether there is `path` below the work directory."""
        return self.transport.run(["test", "-e", str(self.work / path)]).code == 0

    def send_secrets(self, secrets: Mapping[str, str]) -> None:
        """Put the values of secrets into a 0600 file on the host's own storage."""
        if secrets:
            self.put_secret("secrets.json", json.dumps(dict(secrets)).encode())

    def put_secret(self, name: str, content: bytes) -> None:
        """Put a 0600 file among the secrets. Raises HostError, also where somebody else could get at it."""
        own, path = str(self.own), str(self.own / "secrets" / name)
        if self.own != self.work:  # a command that takes no lock may be the first one there
            checked(self.transport, SCRIPTS.argv("claim", own), f"write {path}")
        put(self.transport, path, content, STAYS | 0o600)
        checked(self.transport, SCRIPTS.argv("link_secrets", own, str(self.work)), f"write {path}")

    def leave_secrets(self, secrets: Mapping[str, str]) -> None:
        """Leave no other secrets there than these."""
        if secrets:
            self.send_secrets(secrets)
        else:
            self.remove([str(self.own / "secrets"), str(self.work / "secrets")])

    def secrets(self) -> dict[str, str] | None:
        """Return the values of secrets that the host has, None if it has none."""
        result = self.transport.run(["cat", "--", str(self.own / "secrets" / "secrets.json")])
        found = parse_object(result.out) if result.code == 0 else None
        return None if found is None else {name: str(value) for name, value in found.items()}

    def give(self, container: Container) -> None:
        """Let the user of the job's containers write below the work directory, where `container.user` is a number."""
        uid, _, gid = (container.user or "").partition(":")
        if not uid.isdigit() or uid == "0":
            return
        folders = list(dict.fromkeys([str(self.work), str(self.own)]))
        if not self.containers.as_root(python("give"), folders, container.image, container.python, uid, gid or "0"):
            message = f"cannot let user {container.user} of `container.user` write into {self.work}"
            raise HostError(self.host.name, "cannot-give", message, "`container.user: self` needs no such thing")

    def make_readable(self, interpreters: Iterable[Interpreter]) -> bool:
        """Let the user read what containers have written for themselves alone, by a container with one of `interpreters`.

        Say whether one of them could.
        """
        code, folders = python("readable"), [str(self.work)]
        return any(self.containers.as_root(code, folders, *one) for one in dict.fromkeys(interpreters))

    def make_results_readable(self, container: Container) -> bool:
        """Do the same by an image of the job's containers here, otherwise by that of `container`."""
        there = [seen.interpreter for seen in self.containers.seen()]
        return self.make_readable([*there, (container.image, container.python)])

    def hand_over(self, ledger: bytes, control: bytes, patience: float = 0.0) -> None:
        """Replace the ledger, then the control file, which launchers follow; one that is empty here stays.

        Returns once launchers have started what they run, after `patience` seconds at the latest.
        """
        numbers = [str(len(ledger)), str(len(control)), str(round(20 * patience))]
        argv = SCRIPTS.argv("hand_over", str(self.work / "run"), *numbers)
        checked(self.transport, argv, f"write into {self.work / 'run'}", ledger + control)

    def note_prepared(self, version: str) -> None:
        """Note that all is there that a node needs which may move here; `version` identifies it."""
        put(self.transport, str(self.work / "run" / PREPARED), json.dumps({"version": version}).encode(), 0o644)

    def announce(self, node: int, report: Json | None, reason: str | None = None) -> None:
        """Say of a dead launcher that a new one is on its way, or for which `reason` it could not be started. If it lives, it ends."""
        if report is not None or reason is not None:
            folder, said, work = self.work / f"node-{node}", launching(report or {}, reason), str(self.work)
            if said["replaces"]:
                put(self.transport, str(folder / DECLARED_DEAD), json.dumps(said["replaces"]).encode(), 0o644, work)
            put(self.transport, str(folder / "report.json"), json.dumps(said).encode(), 0o644, work)

    def renew_results(self, version: str, container: Container) -> None:
        """Give a version of the code that is about to run what others have written into output files since it was sent.

        Tell of what cannot be copied, even if a container has made it readable: it stays in the version that has it.
        """
        argv = SCRIPTS.argv("renew_results", str(self.work), version)
        result = self.transport.run(argv, timeout=STARTING)
        if result.code and self.make_results_readable(container):
            result = self.transport.run(argv, timeout=STARTING)
        if result.code:  # shells of some hosts print something in any case
            self.tell(f"{self.host.name} goes on with older output files: {result.words}")

    def start(self, node: int, image: str | None = None) -> None:
        """Start the container of `node` as its artefact says; one that runs from the same artefact stays.

        `image`: what to start where the artefact's name of it means another one by now.
        """
        self._start(f"node-{node}", f"start node {node}", image, lambda: self.end(node, 0.0))

    def start_spare(self, image: str | None = None) -> None:
        """Start the container of a spare likewise."""
        self._start(SPARE, "start the launcher of the spare", image, self.end_spare)

    def _start(self, name: str, what: str, image: str | None, end: Callable[[], None]) -> None:
        how = self.work, name, self.work / name / "report.json", image
        while self.starter.lowers_limit(result := self.starter.start(*how)):
            end()  # it was made, and cannot run
        if result.code != 0:
            raise self.starter.not_started(self.work, name, what, result)

    def start_service(self, name: str) -> None:
        """Start the container of a service as its artefact says; one that runs from the same artefact stays."""
        if (result := self.starter.start(self.work, name)).code != 0:
            raise self.starter.not_started(self.work, name, f"start {name}", result)

    def end(self, name: int | str, grace: float) -> None:
        """Stop the containers of a node or service (SIGTERM, `grace` seconds, SIGKILL), and remove them."""
        found = self.containers.seen()
        if any(seen.role == SPARE for seen in found):  # only files tell which node it has become
            found = self.observe(found).containers
        self._end([seen for seen in found if name in (seen.node, seen.service)], grace)

    def end_spare(self, grace: float = 0.0) -> None:
        """Stop the container of a spare, whatever node it has become, and remove it."""
        self._end([seen for seen in self.containers.seen() if seen.role == SPARE], grace)

    def _end(self, containers: Sequence[SeenContainer], grace: float) -> None:
        self.containers.stop(containers, grace)
        self.containers.remove(containers)
        if any(seen.role == SPARE for seen in containers):  # else the next one there would take that node up again
            self.remove([str(self.work / SPARE_REPORT.parent)])

    def forget(self, name: int | str) -> None:
        """Remove what is left of a node or service that belongs elsewhere now."""
        path = self.work / (f"node-{name}" if isinstance(name, int) else name)
        self.remove([str(path), f"{path}.sh"])

    def erase(self, interpreters: Sequence[Interpreter] = ()) -> None:
        """Remove the work directory, and the folders above it that are empty then; who follows the job leaves first.

        Containers write into it, as root often: where the user may not remove that, a container with one of `interpreters`
        does.
        """
        folders = [str(self.work), str(self.own)]
        self._remove(SCRIPTS.argv("erase", *folders), folders, interpreters)

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files and folders of the job."""
        self._remove(SCRIPTS.argv("remove", str(self.work), str(self.own), *paths), paths, ())

    def _remove(self, argv: Sequence[str], paths: Sequence[str], interpreters: Sequence[Interpreter]) -> None:
        result = self.transport.run(argv, timeout=STARTING)  # of silence: there may be millions of files
        if result.code == 0:
            return
        for interpreter in dict.fromkeys(interpreters) if result.code != NOT_OURS else ():
            folders = [path for path in dict.fromkeys(paths) if self.transport.run(["test", "-d", path]).code == 0]
            if self.containers.as_root(python("empty"), folders, *interpreter):
                result = self.transport.run(argv, timeout=STARTING)
                if result.code == 0:
                    return
        error = problem(self.host.name, f"remove {paths[0]}", result)
        if result.code == NOT_OURS:
            raise error
        denied = any(sign in result.err for sign in (b"Permission denied", b"Operation not permitted"))
        hint = f"`sudo rm -rf {shlex.quote(paths[0])}` there: containers wrote it as root" if denied else error.hint
        raise HostError(self.host.name, error.code, error.cause, hint)


def is_full(said: str) -> bool:
    """Say whether OBSERVE found no room left for us."""
    rooms = [line.split()[1:] for line in said.splitlines() if line.startswith("room ")]
    numbers = next(([number_in(word) for word in words] for words in rooms if len(words) == 5), [])
    told = [number for number in numbers if number is not None]
    return len(told) == 5 and Room(*told).is_used_up(by_root=["of", "root"] in rooms)


def _node(path: PurePosixPath) -> int | None:
    """Return the node whose directory `path` is, or which contains it; None for any other path."""
    first = path.parts[0] if path.parts else ""
    return number_in(first[5:]) if first.startswith("node-") else None


def _pack(artefacts: Iterable[Artefact]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for artefact in artefacts:
            member = tarfile.TarInfo(artefact.path)
            member.size, member.mode = len(artefact.content), artefact.mode
            archive.addfile(member, io.BytesIO(artefact.content))
    return buffer.getvalue()
