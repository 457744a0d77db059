"""Nodes that join a job that runs: it goes on until they can begin at once, and only then the next generation begins.

The launcher of such a node knows the generation that runs, and has no part in it. So it is idle, as that of a hot spare is,
and imports what its processes need (launcher/node/idle_standby.py). Nothing of the job has changed by then: a command that is
killed meanwhile leaves behind a change that is prepared, and that a supervisor makes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures
from jobctl.jobspec.deploy.apply.executor import Transition, ends
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.observed import MAX_NAMED_NODES, Observed, phase
from jobctl.jobspec.plan.types import Node
from jobctl.jobspec.records import dataclass

LIMIT = 120.0  # seconds that what runs goes on for nodes that join, at most
POLL_INTERVAL = 0.2  # seconds between two looks at them
WARMING = "warming"  # what a launcher says of a standby that is not ready yet


@dataclass(frozen=True, slots=True)
class Joined:
    """What became of nodes that are to join: hosts that could not start theirs, and why nodes will begin cold.

    `observed` is the job as it was then. `overtaken` says what another command has made of it meanwhile.
    """

    observed: Observed
    failed: Failures
    cold: Mapping[int, str]
    overtaken: str | None = None


def joining(transition: Transition, failed: Failures) -> tuple[Step, ...]:
    """Return the steps that start nodes which can get ready beside what runs. Hosts that have `failed` are left out.

    None where what runs is not whole, or ends all the same: a launcher of it is replaced, or removed.
    """
    want, observed, steps = transition.want, transition.observed, transition.steps
    if transition.begins is None or phase(observed)[0] != "running" or any(map(ends, steps)):
        return ()
    if transition.is_held(failed):
        return ()
    able = {node.index for node in want.plan.nodes if can_wait(node)} - set(observed.control.placement)
    return tuple(s for s in steps if s.kind == "start" and s.node in able and not s.spare and s.host not in failed)


def can_wait(node: Node) -> bool:
    """Say whether the launcher of a node gets its standby ready before the first generation of it."""
    launch = node.launch
    together = not launch.regroups and launch.rejoin is None and launch.etcd is None
    return launch.standby is not None and not launch.standby.off and not launch.setup and together


def bring_in(
    deployer: Deployer,
    steps: Sequence[Step],
    before: Observed,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = pause,
) -> Joined:
    """Start nodes that join, and return once all nodes can begin at once. Raises DeployError, Locked.

    Also once a new one has to begin cold, for which the others would wait; and where the job does not go on as `before`.
    Nothing is applied while they get ready, so others may have the lock until then.
    """
    failed, job = deployer.apply(steps), deployer.job
    new = {step.node for step in steps if step.node is not None and step.host not in failed}
    stamp, deadline = job.stamp(), clock() + LIMIT
    cold: Mapping[int, str] | None = None if new else {}
    if cold is None:
        with deployer.let_in("up"):
            while cold is None:
                observed = deployer.observe()
                over = _over(before, observed, changed=job.stamp() != stamp, late=clock() > deadline)
                waiting, cold = getting_ready(observed, new, over)
                if cold is None:
                    deployer.tell(f"waits for the standby of {_named(waiting)}; what runs goes on until then")
                    sleep(POLL_INTERVAL)
    observed = deployer.observe()
    return Joined(observed, failed, cold, _overtaken(before, observed, changed=job.stamp() != stamp))


def getting_ready(
    observed: Observed, new: Collection[int], over: str | None
) -> tuple[Collection[int], Mapping[int, str] | None]:
    """Return whose standby is not ready, and once nobody waits for that any more, which nodes begin cold, and why."""
    found = {node: _standby(observed, node) for node in new}
    cold = {node: why for node, (state, why) in found.items() if state == "off"}
    waiting = {node.node for node in observed.members if node.standby is not None and node.standby.state == WARMING}
    waiting |= {node for node, (state, _) in found.items() if state == WARMING}
    if over is not None:
        return waiting, {**dict.fromkeys(sorted(waiting), over), **cold}
    return waiting, cold if cold or not waiting else None


def _overtaken(before: Observed, now: Observed, *, changed: bool) -> str | None:
    """Say what another command has made of the job, None where nothing is in the way of what this one was about to do."""
    first, last = before.control.generation, now.control.generation
    if last is None:
        return "was taken down"
    if changed or (first is not None and first.origin != last.origin):
        return "was changed"
    return None


def _standby(observed: Observed, index: int) -> tuple[str, str]:
    """Return how the standby of a node is, and why it is off."""
    node = observed.node(index)
    if node is None or not node.reachable or not node.alive:
        return "off", "its launcher has gone"
    if node.standby is None:
        return "off", "its launcher has none"
    return node.standby.state, node.standby.reason or ""


def _over(before: Observed, now: Observed, *, changed: bool, late: bool) -> str | None:
    """Say why nodes begin as they are, None while they may get ready: the generation that ran still does, on all of its nodes."""
    if changed or now.control.generation != before.control.generation or phase(now)[0] != "running":
        return "what runs did not go on until its standby was ready"
    return f"its standby was not ready after {LIMIT:g} s" if late else None


def _named(nodes: Iterable[int]) -> str:
    several = sorted(nodes)
    more = f" and {len(several) - MAX_NAMED_NODES} more" if len(several) > MAX_NAMED_NODES else ""
    return f"node {', '.join(map(str, several[:MAX_NAMED_NODES]))}{more}"
