"""What the nodes of a job do right now: how fast they step, and what they use."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.deploy.transport.live_fanout import LiveFanOut
from jobctl.jobspec.operations.inspect.status import ended, look_on, observe
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
    from jobctl.jobspec.deploy.model.sample import DeviceSample
    from jobctl.jobspec.deploy.model.usage import NodeUsage

INTERVAL = 2.0  # seconds between two looks: the tools of drivers take up to half a second
FIRST_INTERVAL = 1.0  # seconds between the first look, which knows no rates, and the second
WINDOW = 10.0  # seconds over which a rate of steps is taken, if that is long enough for some


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node: `rate` in steps a second, `cpu` in cores, `memory` in bytes; None is what is not known."""

    node: ObservedNode
    rate: float | None
    cpu: float | None
    memory: float | None
    devices: tuple[DeviceSample, ...]


@dataclass(frozen=True, slots=True)
class JobLoad:
    """A job at a moment."""

    observed: Observed
    nodes: tuple[NodeLoad, ...]
    over: bool


class _Course:
    """What was seen of one node in the last looks."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque(maxlen=2)  # when the step was another one than before
        self._cpu: tuple[float, float] | None = None

    def rate(self, now: float, step: int | None) -> float | None:
        """Take the step at a moment; return the steps a second since the oldest look that counts.

        If that time has too few of them, it is the rate between the last two, unless the next one is long overdue.
        """
        if step is None or (self._steps and step < self._steps[-1][1]):  # it goes on from a checkpoint
            self._steps.clear()
            self._changes.clear()
        if step is None:
            return None
        if self._steps and step > self._steps[-1][1]:
            self._changes.append((now, step))
        self._steps.append((now, step))
        if len(self._changes) == 2:
            (before, less), (last, more) = self._changes
            if last - before > WINDOW / 2 and now - last <= 2 * (last - before):
                return (more - less) / (last - before)
        while len(self._steps) > 2 and now - self._steps[1][0] >= WINDOW:
            self._steps.popleft()
        begun, first = self._steps[0]
        return (step - first) / (now - begun) if now > begun else None

    def cores(self, now: float, seconds: float | None) -> float | None:
        """Take the CPU time at a moment; return how many cores were busy since the last look."""
        before, self._cpu = self._cpu, None if seconds is None else (now, seconds)
        if before is None or seconds is None or now <= before[0] or seconds < before[1]:
            return None
        return (seconds - before[1]) / (now - before[0])


class LoadWatch:
    """Looks at a job again and again; rates are those between looks.

    `once`: somebody wants to see it once, and what hosts use waits for those that are slow.
    """

    def __init__(self, handle: Handle, *, once: bool = False) -> None:
        self._handle = handle
        self._courses: dict[int, _Course] = {}
        from jobctl.jobspec.deploy.targets.sampling import HostSamplers

        self._once = once
        self._usage = None if once else LiveFanOut(lambda job: str(job.host.name), 0.0)
        self._samplers = HostSamplers(live=not once)

    def look(self) -> JobLoad:
        """Look at the job, its hosts and their devices."""
        from jobctl.jobspec.deploy.targets.sampling import sample_hosts
        from jobctl.jobspec.deploy.targets.usage import usage_of

        observed = observe(self._handle)
        now, used = time.monotonic(), usage_of(self._handle, observed, self._usage)
        hosts = sorted({node.host for node in observed.nodes if node.reachable and node.host})
        samples = sample_hosts(self._handle, hosts, self._samplers)
        devices = {host: sample.devices for host, sample in samples.items()}
        nodes = tuple(self._load(now, node, used.get(node.node), devices.get(node.host, ())) for node in observed.nodes)
        return JobLoad(observed, nodes, ended(self._handle, observed))

    def _load(
        self, now: float, node: ObservedNode, used: NodeUsage | None, devices: Sequence[DeviceSample]
    ) -> NodeLoad:
        course = self._courses.setdefault(node.node, _Course())
        rate = course.rate(now, node.progress if node.state == "running" else None)
        cores = course.cores(now, used.cpu_seconds if used else None)
        return NodeLoad(node, rate, cores, used.memory if used else None, own_devices(node, devices))

    def looks(self) -> Iterator[JobLoad]:
        """Yield the job as it is seen until it ends; with `once` only as the second look sees it, which knows rates."""
        once = self._once
        if not once:
            look_on(self._handle)
        load = self.look()
        if not once:
            yield load
        while not load.over:
            pause(FIRST_INTERVAL if once else max(INTERVAL, self._handle.interval))
            load = self.look()
            if once:
                break
            yield load
        if once:
            yield load


def own_devices(node: ObservedNode, devices: Sequence[DeviceSample]) -> tuple[DeviceSample, ...]:
    """Return those of a host's devices that a node's processes have; all, where they do not tell."""
    named = {process.device for process in node.processes}
    return tuple(one for one in devices if one.device in named) or tuple(devices)
