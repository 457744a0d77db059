"""What is known of jobs, as metrics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import get_args

from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, Phase
from jobctl.jobspec.deploy.model.sample import DeviceSample, HostSample
from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.openmetrics import Family, Kind, exposition, labelled
from jobctl.jobspec.report.report import Story

RATE_OVER = 60.0  # seconds over which the step rate is taken
STALLED_AFTER = 15.0  # seconds without progress that count as standing still: it is recorded every five


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """What is known of one job at `now`. `observed` is None where it could not be looked at, `story` where nothing is recorded."""

    job: str
    framework: str | None
    target: str | None
    now: float
    observed: Observed | None
    phase: Phase
    story: Story | None = None
    progress: Sequence[StepProgress] = ()
    samples: Mapping[str, HostSample] = field(default_factory=dict)


def step_rate(progress: Sequence[StepProgress], generation: int, now: float) -> float | None:
    """Return how many steps a second a generation makes now, None if that is not known yet."""
    mine = [one for one in progress if one.generation == generation]
    if len(mine) < 2:
        return None
    last = mine[-1]
    recent = [one for one in mine if one.at >= now - RATE_OVER]
    first = mine[max(0, len(mine) - len(recent) - 1)]
    until = last.at if now - last.at < STALLED_AFTER else now
    if not recent or until <= first.at:
        return 0.0
    return max(0, last.step - first.step) / (until - first.at)


# Name (after `jobctl_`), kind, meaning and unit, in the order in which they are shown.
_METRICS: tuple[tuple[str, Kind, str, str], ...] = (
    ("observed", "gauge", "Whether at least one host of the job answered (1) or none (0).", ""),
    ("job", "info", "A job that is up.", ""),
    ("phase", "stateset", "The phase of the job, as in `jobctl status`.", ""),
    ("generation", "gauge", "The number of the generation that runs or ran last.", ""),
    ("supervised", "gauge", "Whether a supervisor watches the job from this machine.", ""),
    ("nodes", "gauge", "Nodes that take part, by state.", ""),
    ("progress_steps", "gauge", "The last step that the job has reported.", "steps"),
    ("step_rate", "gauge", "Steps per second over the last minute.", ""),
    ("restarts", "counter", "Failures since the last `up` or `restart`, by cause.", ""),
    ("goodput_ratio", "gauge", "The effective training time ratio of the run, as in `jobctl report`.", "ratio"),
    ("lost_seconds", "gauge", "What failures have cost in this run.", "seconds"),
    ("run_time_seconds", "gauge", "The time of the run, by what it was used for.", "seconds"),
    ("node_up", "gauge", "Whether the node runs.", ""),
    ("node_progress_steps", "gauge", "The node's last reported step.", "steps"),
    ("process_up", "gauge", "Whether the process of a rank runs, and on which device.", ""),
    ("host_cpu_seconds", "counter", "What a host's cores spent their time on.", "seconds"),
    ("host_load", "gauge", "The load of a host over the last minute.", ""),
    ("host_memory_bytes", "gauge", "The memory of a host.", "bytes"),
    ("host_memory_available_bytes", "gauge", "Memory of a host that is free to use.", "bytes"),
    ("device_utilization_ratio", "gauge", "How busy a device is, from 0 to 1.", "ratio"),
    ("device_memory_used_bytes", "gauge", "Used memory of a device.", "bytes"),
    ("device_memory_bytes", "gauge", "The memory of a device.", "bytes"),
    ("device_power_watts", "gauge", "The power that a device draws.", "watts"),
    ("device_temperature_celsius", "gauge", "The temperature of a device.", "celsius"),
    ("device_ecc_errors", "counter", "Memory errors of a device since its driver was loaded.", ""),
)


class _Families:
    """All metrics."""

    def __init__(self) -> None:
        self.all = {name: Family(f"jobctl_{name}", kind, meaning, unit) for name, kind, meaning, unit in _METRICS}

    def _add(self, metric: str, value: float | None, **labels: object) -> None:
        self.all[metric].add(value, labelled(**labels))

    def add(self, known: JobMetrics) -> None:
        """Add what is known of a job."""
        job = known.job
        self._add("job", 1, job=job, framework=known.framework, target=known.target)
        self._add("observed", known.observed is not None, job=job)
        for phase in get_args(Phase):
            self._add("phase", phase == known.phase, job=job, jobctl_phase=phase)
        if known.observed is not None:
            self._add_observed(known, known.observed)
        if known.story is not None:
            self._add_story(job, known.story)
        for host, sample in known.samples.items():
            self._add_host(host, sample)

    def _add_observed(self, known: JobMetrics, observed: Observed) -> None:
        job, generation = known.job, observed.control.generation
        if generation is not None:
            self._add("generation", generation.number, job=job)
            rate = step_rate(known.progress, generation.number, known.now) if known.phase == "running" else 0.0
            self._add("step_rate", rate, job=job)
        if observed.supervised is not None:
            self._add("supervised", observed.supervised, job=job)
        causes = Counter(failure.kind for failure in observed.control.ledger.failures)
        for cause, count in causes.items():
            self._add("restarts", count, job=job, cause=cause)
        members = observed.members
        self._add("progress_steps", max((n.progress for n in members if n.progress is not None), default=None), job=job)
        for state, count in Counter(node.state for node in members).items():
            self._add("nodes", count, job=job, state=state)
        for node in members:
            self._add_node(job, node)

    def _add_node(self, job: str, node: ObservedNode) -> None:
        where = {"job": job, "node": node.node, "host": node.host}
        self._add("node_up", node.state == "running", **where, role=node.role)
        self._add("node_progress_steps", node.progress, **where)
        for process in node.processes:
            self._add("process_up", process.state == "running", **where, rank=process.rank, device=process.device)

    def _add_story(self, job: str, story: Story) -> None:
        self._add("goodput_ratio", story.ratio, job=job)
        self._add("lost_seconds", story.lost, job=job)
        uses: dict[str, float] = {}
        for share in story.shares:
            uses[share.use] = uses.get(share.use, 0.0) + share.end - share.begin
        for use, seconds in uses.items():
            self._add("run_time_seconds", seconds, job=job, use=use)

    def _add_host(self, host: str, sample: HostSample) -> None:
        for mode, seconds in sample.cpu.items():
            self._add("host_cpu_seconds", seconds, host=host, mode=mode)
        self._add("host_load", sample.load, host=host)
        self._add("host_memory_bytes", sample.memory, host=host)
        self._add("host_memory_available_bytes", sample.available, host=host)
        for device in sample.devices:
            self._add_device({"host": host, "device": device.device, "name": device.name}, device)

    def _add_device(self, where: Mapping[str, object], device: DeviceSample) -> None:
        labels = labelled(**where)  # most metrics are of devices: what they have in common is made once
        self.all["device_utilization_ratio"].add(device.utilization, labels)
        self.all["device_memory_used_bytes"].add(device.memory_used, labels)
        self.all["device_memory_bytes"].add(device.memory, labels)
        self.all["device_power_watts"].add(device.watts, labels)
        self.all["device_temperature_celsius"].add(device.celsius, labels)
        self._add("device_ecc_errors", device.corrected, **where, kind="corrected")
        self._add("device_ecc_errors", device.uncorrected, **where, kind="uncorrected")


def metrics_text(jobs: Iterable[JobMetrics]) -> str:
    """Return what is known of jobs in the OpenMetrics format."""
    families = _Families()
    for known in jobs:
        families.add(known)
    return exposition(families.all.values())
