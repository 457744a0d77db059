"""The paths of a job's files on this machine: history and conveniences, and on target `local` the work directory.

`$JOBCTL_STATE_DIR/jobs/JOB/` holds what `up` was started with (`job.json`, `plan.json`, `agreed.json`, and `source.json`, from which
it is planned again), what happened (`events.jsonl`, `progress.jsonl`; `collected.json`: what of it is from launchers), on hosts the newest generation (`newest.json`,
`ledger.json`, `previous.json`) and hosts that were never reached (`unmet/`), channels and outbox of `notify` (`channels.json`, `outbox.json`), locks, collected logs (`history/`), and `host/`, the work directory of target `local`,
laid out as on any host: `launcher.py`, `run/control.json`, `node-N.sh`, `node-N/`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import NoneType
from typing import Any

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.inventory import Inventory, load_inventory
from jobctl.jobspec.deploy.model.untrusted import parse_object
from jobctl.jobspec.deploy.store.files import read_json, remove_file, write_atomic, write_json
from jobctl.jobspec.deploy.store.lock import EXPIRED
from jobctl.jobspec.plan.generation import Generation, Origin, Standing
from jobctl.jobspec.plan.serial import dump_plan, load_plan
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.targets import TARGETS
from jobctl.jobspec.spec.user_folders import user_folder

CHANNELS = "channels.json"
EVENTS, COLLECTED = "events.jsonl", "collected.json"
AGREED = "agreed.json"  # the order that ran at the last `up`
NOTHING: Mapping[str, Any] = {}
UNMET = "unmet"  # an empty file for each host that was never reached
PENDING = "pending.json"  # what the job is to become, while hosts that this needs are waited for


@dataclass(frozen=True, slots=True)
class Pending:
    """A change of a job that is not made yet: what `remember` is to keep."""

    about: Mapping[str, Any]
    plan: Plan
    source: Mapping[str, Any]
    placement: Mapping[int, str]  # where the nodes were when it was proposed
    prepared: frozenset[str]  # hosts that have all that the change needs


@dataclass(frozen=True, slots=True)
class JobDir:
    """The files of one job; nothing here exists before `create`."""

    root: Path

    @property
    def name(self) -> str:
        """The job's name."""
        return self.root.name

    @property
    def state(self) -> Path:
        """The directory of all local history, which this is below."""
        return self.root.parent.parent

    @property
    def host(self) -> Path:
        """The work directory of target `local`."""
        return self.root / "host"

    @property
    def events(self) -> Path:
        """What happened, one JSON object a line."""
        return self.root / EVENTS

    @property
    def collected(self) -> Path:
        """Which events of launchers are among them by now."""
        return self.root / COLLECTED

    @property
    def progress(self) -> Path:
        """How far the job had got when, one JSON object a line."""
        return self.root / "progress.jsonl"

    @property
    def history(self) -> Path:
        """Logs collected by `down`."""
        return self.root / "history"

    @property
    def lock(self) -> Path:
        """Held while steps are applied."""
        return self.root / "lock"

    @property
    def waiting_lock(self) -> Path:
        """Held by a command that waits, in the midst of a change, and lets others have the lock meanwhile."""
        return self.root / "waiting.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor while it lives."""
        return self.root / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        """What the background supervisor prints."""
        return self.root / "supervisor.log"

    @property
    def secrets_key(self) -> Path:
        """The key of the digests by which `source.json` knows the values of secrets."""
        return self.root / "secrets.key"

    @property
    def ssh_host_key(self) -> Path:
        """The key by which SSH clients know the job's nodes."""
        return self.root / "ssh_host_key"

    @property
    def ssh_user_key(self) -> Path:
        """The key that lets SSH clients into the job's nodes."""
        return self.root / "ssh_user_key"

    @property
    def known_hosts(self) -> Path:
        """The host key in the form in which SSH clients read it."""
        return self.root / "known_hosts"

    @property
    def channels(self) -> Path:
        """The channels of `notify`, with their secrets; mode 0600."""
        return self.root / CHANNELS

    @property
    def outbox(self) -> Path:
        """Messages that nobody has taken yet."""
        return self.root / "outbox.json"

    @property
    def outbox_lock(self) -> Path:
        """Held by the process that sends them."""
        return self.root / "outbox.lock"

    def create(self) -> None:
        """Make the job's directory, readable by its owner only: logs may hold anything."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def remember(self, about: Mapping[str, Any], plan: Plan, source: Mapping[str, Any]) -> None:
        """Keep what the job was started with, for commands that name only the job; `source` is what it was planned from.

        By the time that the job runs, a power cut takes none of it away: it cannot be made again from a spec that has changed.
        """
        write_json(self.root / "source.json", dict(source), 0o600, sync=True)
        self.keep_plan(plan)
        write_json(self.root / "job.json", dict(about), 0o600, sync=True)
        (self.root / PENDING).unlink(missing_ok=True)

    def propose(self, about: Mapping[str, Any], plan: Plan, source: Mapping[str, Any]) -> None:
        """Keep what the job is to become, beside what it was started with: `adopt` makes it that.

        Hosts that the change brings are those of the job at once: its supervisor has to reach them for the change.
        """
        before, now = self.job_record(), self.plan()
        homes = {str(node.index): node.host.name for node in now.nodes} if now else {}
        change = {"about": dict(about), "plan": json.loads(dump_plan(plan)), "source": dict(source), "homes": homes}
        write_json(self.root / PENDING, change, 0o600)
        if before is not None and before.get("reach") != about.get("reach"):
            write_json(self.root / "job.json", {**before, "reach": about.get("reach")}, 0o600, sync=True)

    def mark_prepared(self, hosts: Iterable[str], asked: Mapping[str, Any] = NOTHING) -> None:
        """Note which hosts have got all that the proposed change needs; without any, nobody else may make it.

        `asked` is what to keep besides of how the job was started.
        """
        change = read_json(self.root / PENDING)
        if change is not None:
            about = {**change["about"], **asked}
            write_json(self.root / PENDING, {**change, "about": about, "prepared": sorted(hosts)}, 0o600)

    def pending(self) -> Pending | None:
        """Return what was proposed and not adopted yet, None if there is nothing that this version can read."""
        change = read_json(self.root / PENDING)
        try:
            plan = load_plan(json.dumps(change["plan"]).encode()) if change else None
            if change is None or plan is None:
                return None
            homes = {int(node): str(host) for node, host in change["homes"].items()}
            prepared = frozenset(map(str, change.get("prepared", ())))
            return Pending(dict(change["about"]), plan, dict(change["source"]), homes, prepared)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    def is_changing(self) -> bool:
        """Say whether something was proposed and not adopted yet."""
        return (self.root / PENDING).exists()

    def adopt(self) -> None:
        """Keep what was proposed last as what the job was started with; nothing changes where nothing was."""
        change = self.pending()
        if change is not None:
            self.remember(change.about, change.plan, change.source)

    def note_unmet(self, hosts: Iterable[str]) -> None:
        """Keep that hosts of the job were never reached, until they are (`meet`)."""
        for host in hosts:
            (self.root / UNMET).mkdir(exist_ok=True)
            (self.root / UNMET / host).touch()

    def meet(self, host: str) -> None:
        """Take note that a host was reached: from now on something of the job may be there."""
        mark = self.root / UNMET / host
        if mark.exists():  # looked at first: these files may be where nothing can be written
            mark.unlink(missing_ok=True)

    def unreached_hosts(self) -> frozenset[str]:
        """Return hosts of the job that were never reached: nothing of it is there."""
        try:
            return frozenset(os.listdir(self.root / UNMET))
        except FileNotFoundError:
            return frozenset()

    def keep_plan(self, plan: Plan) -> None:
        """Keep another plan of the same job: a node has moved."""
        write_atomic(self.root / "plan.json", dump_plan(plan), 0o600, sync=True)

    def source(self) -> dict[str, Any] | None:
        """Return what the job was planned from, or None if that is not known here."""
        return read_json(self.root / "source.json")

    def job_record(self) -> dict[str, Any] | None:
        """Return what `remember` kept, or None if the job is not up. Raises DeployError for what another version kept.

        So it does for a file that a power cut has emptied: the job may be up.
        """
        try:
            found = parse_object((self.root / "job.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        if found is None:
            raise self._unreadable("it is no JSON object")
        for key, kind in _ABOUT.items():
            if not isinstance(found.get(key), kind):
                raise self._unreadable(f"`{key}` is {found.get(key)!r}")
        if found.get("target", "local") not in TARGETS:
            raise self._unreadable(f"there is no target `{found['target']}`")
        return found

    def _unreadable(self, why: str) -> DeployError:
        path = self.root / "job.json"
        message = f"cannot read {path}, written by another version of jobctl, or damaged: {why}"
        return DeployError(
            message, f"use the version that brought the job up; or `rm {path}`, and name its hosts: `--hosts`"
        )

    def plan(self) -> Plan | None:
        """Return the plan that `remember` kept, or None if there is none that this version can read."""
        try:
            return load_plan((self.root / "plan.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def origin(self, plan: Plan) -> Origin:
        """Return by what name this machine with its state directory orders generations of the job, and what that is here."""
        known = self.source() or {}
        context = known.get("context") or {}
        code = plan.code.version if plan.code else None
        versions = [[one.name, one.version] for one in plan.data]
        what = [known.get("spec"), known.get("count"), context.get("directory"), code, versions]
        digest = sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
        return Origin(socket.gethostname(), self.id, digest)

    def standing(self, plan: Plan) -> Standing:
        """Return the same, and the order that ran when the job was brought to that plan from here."""
        return Standing(self.origin(plan), (read_json(self.root / AGREED) or {}).get("order"))

    def agree(self, generation: Generation | None) -> None:
        """Take note of the order that runs as `up` compares it with what the job is to be: whatever it is, `up` knows it."""
        write_json(self.root / AGREED, {"order": generation.ordered_as if generation is not None else None}, 0o600)

    @property
    def id(self) -> str:
        """The name of this machine with its state directory, as hosts of the job know it."""
        return sha256(f"{socket.gethostname()} {self.root}".encode()).hexdigest()[:16]

    def inventory(self) -> Inventory | None:
        """Return how the hosts of the job are reached, None where it runs on this machine or is not known here."""
        about = self.job_record() or {}
        try:
            return load_inventory(about["reach"]) if about.get("reach") else None
        except ValueError as error:
            raise self._unreadable(f"`reach`: {error}") from error

    def keep_run(self, newest: bytes, ledger: bytes, previous: bytes | None) -> None:
        """Keep control file and ledger of the newest generation, and the control file of the previous one.

        The hosts that have them may be gone when they are needed.
        """
        for name, content in (("previous.json", previous), ("ledger.json", ledger), ("newest.json", newest)):
            if content is not None:
                write_atomic(self.root / name, content, 0o600)

    def kept_run(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
        """Return newest control file, ledger, and the control file before, as far as `keep_run` kept them."""
        newest, ledger, previous = (self.root / name for name in ("newest.json", "ledger.json", "previous.json"))
        return read_json(newest), read_json(ledger), read_json(previous)

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Return what is another whenever `remember`, `propose` or `keep_plan` has kept something else.

        They replace files whole.
        """
        found = []
        for name in ("job.json", "plan.json", PENDING, AGREED):
            try:
                stat = (self.root / name).stat()
            except FileNotFoundError:
                continue
            found.append((stat.st_mtime_ns, stat.st_ino))
        return tuple(found)

    def is_known(self) -> bool:
        """Say whether the job was ever brought up or supervised from here, and not only looked at from here."""
        try:
            names = set(os.listdir(self.root))
        except FileNotFoundError:
            return False
        return COLLECTED not in names or not names <= {EVENTS, COLLECTED}

    def forget(self) -> None:
        """Remove what `remember` kept; events, progress and collected logs stay."""
        for name in _FORGOTTEN:
            remove_file(self.root / name)
        shutil.rmtree(self.root / UNMET, ignore_errors=True)


# What of `job.json` commands rely on, and what it has to be.
_ABOUT: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("target", "spec", "hosts", "on", "exclude", "owner"), (str, NoneType)),
    "set": (list, NoneType),
    "cluster": (dict, NoneType),
}

# What is kept of a job while it is up.
FILES_OF_JOB = (
    PENDING,
    AGREED,
    "job.json",
    "plan.json",
    "source.json",
    "secrets.key",
    "newest.json",
    "ledger.json",
    "previous.json",
)
SSH = ("ssh_host_key", "ssh_user_key", "known_hosts")  # made at the first use, of a job that is up or not
_FORGOTTEN = (*FILES_OF_JOB, *SSH, "supervisor.log", "supervisor.lock", "waiting.lock", EXPIRED, COLLECTED)


def state_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory of all local history (`$JOBCTL_STATE_DIR`, default `$XDG_STATE_HOME/jobctl`)."""
    given = environ.get("JOBCTL_STATE_DIR")
    if given:
        return Path(given).absolute()
    return user_folder(environ, "XDG_STATE_HOME", ".local/state") / "jobctl"


def job_dir(state: Path, job: str) -> JobDir:
    """Return where the files of `job` are or would be."""
    return JobDir(state / "jobs" / job)


def known_jobs(state: Path) -> Iterator[JobDir]:
    """Yield the jobs that are up, in order of their names. Raises OSError if their folder is a file, or unreadable."""
    folder = state / "jobs"
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        try:
            os.stat(folder / name / "job.json")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass  # of another user, say: it may be up, and who reads it learns why that cannot be seen
        yield JobDir(folder / name)


def readable_jobs(state: Path) -> Iterator[JobDir]:
    """Yield those of the known jobs that this user and version can read: what others have kept for one job blocks no other job."""
    for job in known_jobs(state):
        with contextlib.suppress(DeployError, OSError):
            job.job_record()
            yield job
