"""How a job in Slurm stands, from what Slurm and the job's own files say. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from jobctl.jobspec.deploy.model.control import Control, Ledger, begun_by_launchers, kept_control, newest
from jobctl.jobspec.deploy.model.observed import (
    Observed,
    ObservedNode,
    Phase,
    describe_failure,
)
from jobctl.jobspec.deploy.model.report_reader import parse_node
from jobctl.jobspec.deploy.model.slurm_state import SlurmState
from jobctl.jobspec.deploy.model.spare_state import SpareState
from jobctl.jobspec.deploy.model.untrusted import Json, as_number, as_text, number_in, objects
from jobctl.jobspec.deploy.slurm.queue import QueueEntry, SlurmLook
from jobctl.jobspec.plan.types import Plan

_OVER: Mapping[str, tuple[Phase, str]] = {
    "CANCELLED": ("stopped", "cancelled in Slurm, by `scancel` or an administrator; `jobctl up` submits it again"),
    "TIMEOUT": ("failed", "its time limit is over, and it did not go on"),
    "NODE_FAIL": ("failed", "the machine of its batch script was lost"),
    "OUT_OF_MEMORY": ("failed", "it needed more memory than Slurm gave it"),
    "PREEMPTED": ("failed", "Slurm gave its nodes to another job, and it did not go on"),
    "DEADLINE": ("failed", "its deadline is over"),
    "BOOT_FAIL": ("failed", "its nodes did not boot"),
}
# What Slurm's reasons for waiting mean where waiting does not help.
_STUCK = (
    ("JobHeldAdmin", "an administrator holds it: ask them to release it"),
    ("JobHeld", "it is held: `scontrol release` lets it go on"),
    ("launch failed", "it is held after a failed start: look at the nodes, then `scontrol release`"),
    ("PartitionTimeLimit", "its time limit is above the partition's: lower `slurm.time`"),
    ("PartitionNodeLimit", "it asks for more nodes than the partition gives one job: lower `nodes`"),
    ("PartitionDown", "its partition is down: choose another `slurm.partition`, or wait until it is up"),
    ("QOSNotAllowed", "its partition does not take that QOS: change `slurm.qos` or `slurm.partition`"),
    ("AccountNotAllowed", "its partition does not take that account: change `slurm.account` or `slurm.partition`"),
    ("PerJob", "a limit of the account or QOS for one job is lower: ask for less, or change `slurm.qos`"),
    ("WallDuration", "a limit of the account or QOS for one job is lower: lower `slurm.time`"),
    ("PartitionInactive", "its partition takes no jobs now: choose another `slurm.partition`"),
    ("ReqNodeNotAvail", "nodes that it needs are down, drained or reserved: `sinfo -R` says why"),
    ("DOWN, DRAINED", "`sinfo -R` says why nodes are down or drained"),
    ("BeginTime", "Slurm starts a job that was requeued two minutes later"),
    ("Licenses", "the licenses that it asks for are in use"),
    ("Invalid", "the account or QOS does not allow it: change `slurm.account` or `slurm.qos`"),
    ("BadConstraints", "no node has what `slurm.constraint` asks for"),
    ("Dependency", "it waits for its allocation before this one to end"),
)
# Those that only a person ends.
_HELD = (
    *("JobHeld", "launch failed", "PartitionTimeLimit", "PartitionNodeLimit", "Invalid", "BadConstraints"),
    *("NotAllowed", "PerJob", "WallDuration"),
)


def observed_job(look: SlurmLook, plan: Plan | None) -> Observed:
    """Return a job as it was looked at."""
    reports = dict(look.reports())
    control = _control(look, reports.values())
    nodes = tuple(_nodes(look, reports, plan))
    found = verdict(look, nodes, control.generation.number if control.generation else 0)
    if found[0] == "failed":
        control = replace(control, ledger=_with_last(control.ledger, nodes))
    owner = as_text(look.files.get(PurePosixPath("run/start.json"), {}).get("owner"))
    return Observed(
        control,
        nodes,
        supervised=None,
        owners=frozenset({owner} if owner else ()),
        verdict=found,
        slurm=_slurm(look.entry),
        spares=_spares(look),
    )


def _slurm(entry: QueueEntry | None) -> SlurmState | None:
    if entry is None:
        return None
    fields = (entry.state, entry.reason, entry.expected_start if entry.waits else None, entry.nodes, entry.time_left)
    return SlurmState(number_in(entry.job_id) or 0, *fields, entry.place.number if entry.place else None)


def _control(look: SlurmLook, reports: Iterable[Json]) -> Control:
    """Return the newest generation that any launcher knows: their own, or that of the control file."""
    written = kept_control(look.files.get(PurePosixPath("run/control.json")))
    told = [begun_by_launchers(report) for report in reports]
    began = written.generation.began if written.generation else 0.0
    own = [one for one in told if one.generation and one.generation.began >= began]
    found = newest([written, *own])
    return Control(found.generation, Ledger(began).with_those_of(found.generation))


def _with_last(ledger: Ledger, nodes: Sequence[ObservedNode]) -> Ledger:
    """Return the ledger with the failure that ended the job, which no generation has followed."""
    failures = [node.failure for node in nodes if node.failure is not None and node.failure.kind != "launcher"]
    last = min(failures, key=lambda failure: failure.at, default=None)
    return ledger if last is None else ledger.with_failure(last)


def _nodes(look: SlurmLook, reports: Mapping[int, Json], plan: Plan | None) -> Iterator[ObservedNode]:
    said = look.allocation.get("nodes")
    places: Mapping[str, Json] = said if isinstance(said, dict) else {}
    known = {node.index: node.role for node in plan.nodes} if plan else {}
    runs = look.is_fresh if look.entry is None else look.entry.runs
    placed = {number for name in places if (number := number_in(name)) is not None}
    elastic = plan is not None and plan.elastic and placed
    for index in sorted(placed if elastic else {*known, *reports, *placed}):
        place = places.get(str(index)) or {}
        host = as_text(place.get("host")) or ""
        report = reports.get(index)
        heard = not look.is_stale and place.get("heard") is True
        lost = runs and place and not heard and place.get("ended") is None
        refused = as_text(place.get("refused")) if runs else None
        alive = runs and heard and place.get("runs") is True
        launcher = as_number((report or {}).get("launcher", {}).get("pid")) if alive else None
        role = known.get(index, "trainer")
        if look.entry is not None and look.entry.waits:
            yield ObservedNode(index, role, "", "pending")
        elif lost:
            seen = parse_node(index, role, host, report, 1, None)
            yield replace(seen, state="lost", reachable=False, launcher=None, reason=f"{host} does not answer")
        elif refused:
            seen = parse_node(index, role, host, report, None, None)
            yield replace(seen, state="pending", failure=None, reason=f"{host} cannot start it: {refused}")
        else:
            yield parse_node(index, role, host, report, launcher, None)


def _spares(look: SlurmLook) -> tuple[SpareState, ...]:
    """Return the machines of the allocation that have no node, and whether they answer."""
    named = [(as_text(one.get("host")), as_text(one.get("state"))) for one in objects(look.allocation.get("spares"))]
    return tuple(SpareState(host, state) for host, state in named if host and state)


# How it stands.


def verdict(look: SlurmLook, nodes: Sequence[ObservedNode] = (), number: int = 0) -> tuple[Phase, str | None]:
    """Return the phase, and why. `nodes` and the generation's `number` only tell apart how a job runs."""
    entry, result = look.entry, _result(look)
    if entry is None and look.is_fresh:
        return _running(look, nodes, number)
    if entry is not None and entry.waits:
        return "pending", waiting_words(entry)
    if result is not None:
        return result
    if entry is not None and entry.runs:
        return _running(look, nodes, number)
    if entry is not None:
        return _ended(entry, look)
    if look.known_id is None:
        return "stopped", "nothing of it is in Slurm"
    return "failed", f"Slurm knows nothing of job {look.known_id} any more, and that left no result{_last_words(look)}"


def _result(look: SlurmLook) -> tuple[Phase, str | None] | None:
    """Return how the coordinator says that the job ended, None while it has not."""
    result = look.result
    if result is None:
        return None
    phases: Mapping[object, Phase] = {"succeeded": "succeeded", "failed": "failed", "stopped": "stopped"}
    phase = phases.get(result.get("phase"))
    if phase is None:
        return None
    return phase, None if phase == "succeeded" else as_text(result.get("reason"))


def waiting_words(entry: QueueEntry) -> str:
    """Say why a job waits, where it stands, when it is expected to start, and what helps where waiting does not."""
    place = when = ""
    if entry.place is not None:
        place = f"; it is number {entry.place.number} of {entry.place.count} that wait for partition `{entry.place.partition}`"
    if entry.expected_start:
        when = time.strftime("; expected to start at %Y-%m-%d %H:%M:%S", time.localtime(entry.expected_start))
    return _why_it_waits(entry) + place + when


def _why_it_waits(entry: QueueEntry) -> str:
    why = entry.reason or ""
    remedy = next((f": {words}" for sign, words in _STUCK if sign.lower() in why.lower()), "")
    return f"job {entry.job_id} waits in Slurm's queue{f' ({why}{remedy})' if why else ''}"


def held_words(entry: QueueEntry | None) -> str | None:
    """Say why a job waits in the queue that will not start without a person, None of any other job."""
    if entry is None or not entry.waits or not any(sign.lower() in (entry.reason or "").lower() for sign in _HELD):
        return None
    return _why_it_waits(entry)


def _ended(entry: QueueEntry, look: SlurmLook) -> tuple[Phase, str | None]:
    phase, words = _OVER.get(entry.state, ("failed", f"it ended in Slurm as {entry.state} without a result"))
    code = f", exit code {entry.exit_code}" if entry.exit_code and phase == "failed" else ""
    return phase, f"job {entry.job_id}: {words}{code}{'' if entry.state in _OVER else _last_words(look)}"


def _last_words(look: SlurmLook) -> str:
    """Return what may say why a job has left no result: its last line, or that it wrote nothing where jobctl looks."""
    if look.said is not None:
        return f"; slurm.out ends with: {look.said}"
    return (
        "" if look.allocation else "; it wrote nothing: its machine may not see the job's directory (`slurm.directory`)"
    )


def _running(look: SlurmLook, nodes: Sequence[ObservedNode], number: int) -> tuple[Phase, str | None]:
    allocation = look.allocation
    if look.entry is not None and look.entry.state == "SUSPENDED":
        longer = "from its checkpoint if that takes longer than `recovery.host_timeout`"
        return "degraded", f"job {look.entry.job_id} is suspended in Slurm: `scontrol resume` lets it go on, {longer}"
    if look.entry is not None and look.entry.state == "COMPLETING" and allocation.get("state") != "handed-over":
        # `scancel` and a requeue by Slurm look alike until that is over.
        return "restarting", f"Slurm ends job {look.entry.job_id}; whether it goes on shows once that is done"
    if look.known_id != as_text(allocation.get("job_id")) or allocation.get("state") == "starting":
        return "starting", as_text(allocation.get("reason")) or "its batch script begins"
    if allocation.get("state") in ("handed-over", "interrupted"):
        return "restarting", as_text(allocation.get("reason"))
    if look.is_stale:
        return "degraded", "the batch script does not answer: without its machine the job goes on in another allocation"
    lost = [node for node in nodes if node.state == "lost"]
    failed = [node for node in nodes if node.state in ("failed", "fenced")]
    if failed:
        return "restarting", "; ".join(describe_failure(node) for node in failed)
    if lost:
        return "degraded", "; ".join(f"node {node.node}: {node.reason}" for node in lost)
    ended = [node for node in nodes if node.state == "exited" and node.generation < number]  # what was before
    waiting = [node for node in nodes if node.state in ("pending", "starting") or node in ended]
    if not waiting:
        return "running", None
    again = bool(ended) or any(node.generation > 1 for node in nodes)
    words = "; ".join(f"node {node.node}: {node.reason or node.state}" for node in waiting[:3])
    return ("restarting" if again else "starting"), words
