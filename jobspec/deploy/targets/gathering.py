"""Collecting what launchers have kept of what happened, into this machine's history."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.model.launcher_events import KeptEvents, joined, kept_events, stamp_of, told_of_dropped
from jobctl.jobspec.deploy.model.untrusted import Json, number_in, parse_object
from jobctl.jobspec.deploy.store.events import EventFile, KnownEvents
from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import read_holder
from jobctl.jobspec.launcher.report.event_log import EVENTS

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob
    from jobctl.jobspec.deploy.targets.host_fleet import HostFleet

MAX_FILE_BYTES = 8 << 20  # bytes of a file of events that are read: a launcher keeps far less
READ_TIMEOUT = 10.0  # seconds that a host gets to send them

Place = tuple[str, int]  # a host, and a node that has a folder there


def gather(
    job: JobDir,
    reports: Mapping[Place, Json | None],
    fetch: Callable[[Sequence[Place]], Mapping[Place, Json | None]],
    now: float,
    words: Callable[[str], str] = str,
) -> None:
    """Add to the job's events what launchers have kept, each thing once; what cannot be done now is left for later.

    `reports` are those of all nodes that were seen; `fetch` reads the files of events in their folders. `words` says what
    becomes of an event's message.
    """
    known = {file: count for file, count in (read_json(job.collected) or {}).items() if isinstance(count, int)}
    stamps = {place: stamp for place, report in reports.items() if report and (stamp := stamp_of(report)) is not None}
    places = [place for place, (file, count) in stamps.items() if known.get(file) != count]
    if not places:
        return
    found = {place: kept for place, data in fetch(places).items() if (kept := kept_events(data)) is not None}
    whole = _add(job, found, now, words)
    if whole is None:
        return
    files = {file for file, _ in stamps.values()}
    done = {kept.file: kept.count for kept in found.values()} if whole else {}
    with contextlib.suppress(OSError):
        write_json(job.collected, {**{file: n for file, n in known.items() if file in files}, **done}, 0o600)


def _add(job: JobDir, found: Mapping[Place, KeptEvents], now: float, words: Callable[[str], str]) -> bool | None:
    """Add events to the log; return whether these are all, None where there is no room for them."""
    log = KnownEvents(job.events)
    log.look()
    told, whole = joined((event for kept in found.values() for event in kept.events), now)
    gaps = [told_of_dropped(kept, node, host, log.has) for (host, node), kept in found.items()]
    try:
        log.add({**event, "message": words(event["message"])} for event in [*filter(None, gaps), *told])
    except OSError:
        return None
    return whole


class HostEvents(EventFile):
    """The events of a job on hosts."""

    def __init__(self, fleet: HostFleet) -> None:
        super().__init__(fleet.job.events)
        self.fleet = fleet

    def gather(self) -> None:
        """Collect from the hosts that answered when last observed; they are observed now if they never were.

        Not where a supervisor of this machine watches, which collects: nobody has to wait for a host that is silent then.
        """
        fleet = self.fleet
        if not fleet.seen and not fleet.down:
            if read_holder(fleet.job.supervisor_lock):
                return
            with contextlib.suppress(AllUnreachable):
                fleet.observe()
        reports = {(host, node): report for host, seen in fleet.seen.items() for node, report in seen.reports.items()}
        gather(fleet.job, reports, self._fetch, time.time())

    def _fetch(self, places: Sequence[Place]) -> Mapping[Place, Json | None]:
        nodes: dict[str, list[int]] = {}
        for host, node in places:
            nodes.setdefault(host, []).append(node)
        outcome = self.fleet.on_each(nodes, lambda host_job: _files(host_job, nodes[host_job.host.name]))
        return {(one.host.name, node): data for one, files in outcome.done.items() for node, data in files.items()}


def _files(host_job: HostJob, nodes: Iterable[int]) -> dict[int, Json | None]:
    """Read the files of nodes on one host. Raises HostError."""
    found: dict[int, Json | None] = {}
    for node in nodes:
        path = str(host_job.work / f"node-{node}" / EVENTS)
        done: Any = host_job.transport.run(["head", "-c", str(MAX_FILE_BYTES), "--", path], timeout=READ_TIMEOUT)
        found[node] = parse_object(done.out) if done.code == 0 else None
    return found


class LocalEvents(EventFile):
    """The events of a job on this machine, which is called `host`."""

    def __init__(self, job: JobDir, host: str) -> None:
        super().__init__(job.events)
        self.job, self.host = job, host

    def gather(self) -> None:
        """Collect from the work directory."""
        found = {number_in(path.name[5:]): path for path in self.job.host.glob("node-*")}
        folders = {node: path for node, path in found.items() if node is not None}
        reports = {(self.host, node): read_json(path / "report.json") for node, path in folders.items()}
        gather(
            self.job,
            reports,
            lambda places: {place: read_json(folders[place[1]] / EVENTS) for place in places},
            time.time(),
        )
