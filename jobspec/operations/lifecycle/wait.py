"""Waiting for a job: until it runs, or until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.operations.inspect.status import JobState, observe, state_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.operations.reporter import Reporter

INTERVAL = 0.1  # seconds between two looks at a job that is waited for
BRIEF = 0.05  # seconds between two looks at one that is about to run
ALONE = 10.0  # seconds beyond `host_timeout` within which launchers have decided what to do about a failure
LONG = 10.0  # seconds of waiting for the same after which that is said


def wait_until_ended(
    handle: Handle, seconds: float | None = None, tell: Callable[[str], None] | None = None
) -> JobState:
    """Wait until the job ends, or `seconds` are over; return its last state. `tell`: of a job that nobody can see for long."""
    deadline = None if seconds is None else time.monotonic() + seconds
    since, told = time.monotonic(), False
    while True:
        state = state_of(handle, observe(handle))
        if state.over or (deadline is not None and time.monotonic() >= deadline):
            return state
        if state.phase != "unknown":
            since, told = time.monotonic(), False
        elif tell is not None and not told and time.monotonic() - since > LONG:
            tell(f"unknown for a while: {state.reason}; still waiting for an answer, Ctrl-C gives up")
            told = True
        pause(max(INTERVAL, handle.interval))


def wait_until_up(handle: Handle, reporter: Reporter) -> JobState:
    """Wait until every node runs, the job waits in a queue, or it has ended; return its state.

    Where nobody watches, launchers get their time to begin again after a failure.
    """
    from jobctl.jobspec.deploy.model.observed import SETTLED, decides_alone, phase

    since, last, failed = time.monotonic(), None, None
    with reporter.waiting() as waiting:
        while True:
            observed = handle.observe()
            now, reason = phase(observed)
            generation = observed.control.generation
            if now == "degraded" and generation is not None and decides_alone(observed):
                failed = time.monotonic() if failed is None else failed
                decides = time.monotonic() - failed < generation.host_timeout + ALONE
            else:
                failed, decides = None, False
            if now in ("pending", "running", "degraded", *SETTLED) and not decides:
                return state_of(handle, observed)
            if reason != last:
                since, last = time.monotonic(), reason
            elif reason and time.monotonic() - since > LONG:
                since = float("inf")
                reporter.say(f"{now} for a while: {reason}")
            waiting.show(f"{now}: {reason or ''}", _counts(observed))
            pause(BRIEF)


def _counts(observed: Observed) -> tuple[int, int]:
    ready = [node for node in observed.members if node.state in ("running", "exited")]
    return len(ready), len(observed.members)
