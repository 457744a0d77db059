"""What a launcher's report says of its node. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jobctl.jobspec.deploy.model.observed import LAUNCHER_KILLED, ObservedNode, ObservedProcess, State
from jobctl.jobspec.deploy.model.untrusted import Json, as_code, as_moment, as_number, as_text, objects, texts
from jobctl.jobspec.launcher.report.node_report import StandbyState, StartWay
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.recovery import Failure

_STATES: dict[str, State] = {
    "launching": "pending",  # written by the deployer, see `launching`
    "waiting": "pending",
    "setup": "starting",
    "running": "running",
    "succeeded": "exited",
    "failed": "failed",
    "fenced": "fenced",
    "stopped": "exited",
}
# Fields of a report, and what launchers of earlier versions call them: their jobs are seen, too.
_EARLIER = {"process_restarts": "again", "restart_reason": "because", "stacks_written": "mustered"}
_PROCESS_STATES: frozenset[State] = frozenset(("pending", "starting", "running", "exited", "failed", "lost", "fenced"))


def launching(report: Json, reason: str | None = None) -> Json:
    """Return a dead launcher's report, saying that a new one replaces it. Launchers of earlier versions look for that here.

    `reason`: why that one could not be started; it stays until a launcher says something else.
    """
    reason = reason or (report.get("reason") if report.get("state") == "launching" else None)
    replaces = report.get("launcher") or report.get("replaces")
    return {**report, "state": "launching", "launcher": {}, "replaces": replaces, "failure": None, "reason": reason}


def parse_node(
    node: int, role: str, host: str, report: Json | None, launcher: int | None, artefact: ArtefactId | None
) -> ObservedNode:
    """Return a node from its launcher's report and from whether that launcher lives (its pid, otherwise None).

    Anybody in the container may have written the report, or a launcher of another version: what is missing in it, or
    is not what it should be, is taken as not known.
    """
    if report is None:
        return ObservedNode(node, role, host, "pending", artefact, launcher)
    report = {**{name: report.get(earlier) for name, earlier in _EARLIER.items()}, **report}
    role = as_text(report.get("role")) or role
    if artefact is None and (said_hash := as_text(report.get("artefact"))):
        artefact = ArtefactId(said_hash)  # a launcher that has ended can no longer be asked
    said = str(report.get("state"))
    dead = launcher is None and said in ("waiting", "setup", "running")
    return ObservedNode(
        node,
        role,
        host,
        "failed" if dead else _STATES.get(said, "pending"),
        artefact,
        launcher,
        generation=as_number(report.get("generation")) or 0,
        exit_code=as_code(report.get("exit_code")),
        reason=LAUNCHER_KILLED if dead else as_text(report.get("reason")),
        started_at=as_moment(report.get("started_at")),
        progress=as_number(report.get("progress")),
        failure=_failure(report, node, host, dead=dead),
        processes=tuple(_processes(report, dead=dead)),
        port=as_number(report.get("port")),
        process_restarts=as_number(report.get("process_restarts")) or 0,
        restart_reason=as_text(report.get("restart_reason")),
        stacks_written=report.get("stacks_written") is True,
        standby=_standby(report.get("standby")),
        start=_start(report.get("start")),
    )


def _standby(said: object) -> StandbyState | None:
    state = isinstance(said, dict) and as_text(said.get("state"))
    return StandbyState(state, as_text(said.get("reason"))) if isinstance(said, dict) and state else None


def _start(said: object) -> StartWay | None:
    if not isinstance(said, dict):
        return None
    return StartWay(said.get("standby") is True, as_text(said.get("cold_because")))


def _processes(report: Json, *, dead: bool) -> Iterator[ObservedProcess]:
    for p in objects(report.get("processes")):
        rank, local_rank = as_number(p.get("rank")), as_number(p.get("local_rank"))
        if rank is None or local_rank is None:
            continue
        state: State = next((known for known in _PROCESS_STATES if known == p.get("state")), "pending")
        gone = dead and state in ("pending", "running")
        yield ObservedProcess(
            rank,
            local_rank,
            "failed" if gone else state,
            None if gone else as_number(p.get("pid")),
            as_code(p.get("exit_code")),
            as_text(p.get("device")),
            as_number(p.get("step")),
            as_text(p.get("where")),
            texts(p.get("stack")),
            as_moment(p.get("own_seconds")),
        )


def _failure(report: Json, node: int, host: str, *, dead: bool) -> Failure | None:
    common: Json = {
        "generation": as_number(report.get("generation")) or 0,
        "node": node,
        "host": host,
        "progress": as_number(report.get("progress")),
        "role": as_text(report.get("role")) or "trainer",
    }
    if dead:
        return Failure(**common, at=0.0, rank=None, exit_code=None, kind="launcher", ran=0.0)
    f = report.get("failure")
    if not isinstance(f, dict):
        return None
    at = as_moment(f.get("at")) or 0.0
    began = as_moment(report.get("started_at")) or at
    return Failure(
        **common,
        at=at,
        rank=as_number(f.get("rank")),
        exit_code=as_code(f.get("exit_code")),
        kind=as_text(f.get("kind")) or "process",
        ran=max(0.0, at - began),
        log=as_text(f.get("log")),
        tail=texts(f.get("tail")),
        reason=as_text(report.get("reason")),
    )
