"""What is measured of one host in one round."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import field

from jobctl.jobspec.deploy.check.fitness.effort import Effort
from jobctl.jobspec.deploy.check.fitness.samples import ROUNDS_DIGEST, Sample, device_values, sample_of, storage_speed
from jobctl.jobspec.deploy.check.fitness.session import ProbeSession
from jobctl.jobspec.deploy.check.fitness.verdicts import METRICS
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.frameworks.programs import text_of
from jobctl.jobspec.records import dataclass

DIGEST = hashlib.pbkdf2_hmac(*ROUNDS_DIGEST).hex()
MEASURE_TIMEOUT = 120.0  # seconds in which a probe measures one thing on a busy host
# Bytes that are written in a turn, which are some also where the clock runs and the host does not
MIN_WRITTEN_BYTES = 4 << 20
IMPORT = 600.0  # and in which a framework is imported and compiles its kernels


@dataclass(frozen=True, slots=True)
class MeasureTask:
    """What to measure of a host. `shared`: other hosts use its cores. `devices`: their kind, None to leave them out.

    `program` is the one that measures devices. `metrics` are the names of those that are measured, None for all.
    """

    effort: Effort
    shared: bool
    directory: str | None  # whose storage is measured
    devices: str | None
    program: str
    token: str
    metrics: frozenset[str] | None = None


@dataclass
class HostValues:
    """What came of it: values by metric and device, samples by metric, what was wrong, and which checks failed."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    samples: dict[str, Sample] = field(default_factory=dict)
    wrong: list[tuple[str, str]] = field(default_factory=list)  # check, sentence
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, DeployError]] = field(default_factory=list)


def measure_host(session: ProbeSession, task: MeasureTask) -> HostValues:
    """Measure one host; a check that fails does not keep the others from being tried."""
    found = HostValues()
    for check, metrics, measure in STEPS:
        if task.metrics is not None and not task.metrics & metrics:
            continue
        try:
            measure(session, task, found)
        except DeployError as error:
            found.failed.append((check, error))
            if session.broken:
                break
    return found


def _compute(session: ProbeSession, task: MeasureTask, found: HostValues) -> None:
    said = session.ask("compute", MEASURE_TIMEOUT, seconds=task.effort.compute)
    if said.get("digest") != DIGEST:
        found.wrong.append(("compute", "its processor computed a wrong hash"))
    found.samples["all cores"] = _sample(session, said)


def _memory(session: ProbeSession, task: MeasureTask, found: HostValues) -> None:
    said = session.ask("memory", MEASURE_TIMEOUT, seconds=task.effort.memory)
    found.samples["memory of the host"] = _sample(session, said)


def _sample(session: ProbeSession, said: Json) -> Sample:
    try:
        return sample_of(said.get("sample") or {})
    except ValueError as error:
        raise HostError(session.host, "probe-unreadable", str(error)) from error


def _storage(session: ProbeSession, task: MeasureTask, found: HostValues) -> None:
    if task.directory is None:
        return
    where = {"directory": task.directory, "name": f"{task.token}-{session.host}"}
    how = {"bytes": task.effort.bytes, "least": MIN_WRITTEN_BYTES if task.shared else 0, "seconds": task.effort.storage}
    said = session.ask("storage", MEASURE_TIMEOUT, **where, **how)
    if said["wrong"]:
        found.wrong.append(("storage", f"what was written into {task.directory} reads differently"))
    found.values["writing"] = {"": storage_speed(said, "write", shared=task.shared)}
    found.values["reading"] = {"": storage_speed(said, "read", shared=task.shared)}


def _devices(session: ProbeSession, task: MeasureTask, found: HostValues) -> None:
    if task.devices is None:
        return
    how = {"kind": task.devices, "size": task.effort.matrix, "seconds": task.effort.device}
    said = session.ask("devices", IMPORT, program=text_of(task.program), **how)
    if said["missing"] is not None and task.devices != "cpu":
        found.skipped.append(("compute", f"its devices were not measured: {said['missing']}"))
    for one in said["devices"]:
        if not one["right"]:
            found.wrong.append(("compute", f"{one['device']} multiplied whole numbers wrongly"))
    found.values.update(device_values(said))


OF_DEVICES = frozenset(metric.name for metric in METRICS if metric.once)
STEPS: tuple[tuple[str, frozenset[str], Callable[[ProbeSession, MeasureTask, HostValues], None]], ...] = (
    ("compute", frozenset({"all cores"}), _compute),
    ("memory", frozenset({"memory of the host"}), _memory),
    ("storage", frozenset({"writing", "reading"}), _storage),
    ("compute", OF_DEVICES, _devices),
)
