"""Waiting for a job: until it runs, or until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from threading import TIMEOUT_MAX, Thread
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.operations.inspect.status import JobState, look_on, observe, state_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.operations.reporter import Reporter

INTERVAL = 0.1  # seconds between two looks at a job that is waited for
FAST_POLL_INTERVAL = 0.05  # seconds between two looks at one that is about to run
AUTONOMY_MARGIN = 10.0  # seconds beyond `host_timeout` within which launchers have decided what to do about a failure
UNHEARD = 60.0  # seconds for which hosts of a job that was just started may be silent
LONG = 10.0  # seconds of waiting for the same after which that is said
MIN_LOOK_TIMEOUT = 5.0  # seconds that the first look gets, however short the wait: without one nothing is known


def wait_until_ended(
    handle: Handle, seconds: float | None = None, tell: Callable[[str], None] | None = None
) -> JobState:
    """Wait until the job ends, or `seconds` are over; return its last state. `tell`: of a job that nobody can see for long.

    A look that takes longer than that is given up. If no look was done, the phase is `unknown`.
    """
    began = since = time.monotonic()
    told, last = False, None
    if seconds is not None:
        look_on(handle)
    while True:
        state = _look(
            handle, None if seconds is None else began + max(seconds, MIN_LOOK_TIMEOUT if last is None else 0.0)
        )
        if state is None:
            return last or _unseen(handle)
        if state.over or (seconds is not None and time.monotonic() >= began + seconds):
            return state
        if state.phase != "unknown":
            since, told = time.monotonic(), False
        elif tell is not None and not told and time.monotonic() - since > LONG:
            tell(f"unknown for a while: {state.reason}; still waiting for an answer, Ctrl-C gives up")
            told = True
        last = state
        rest = max(INTERVAL, handle.interval)
        pause(rest if seconds is None else max(0.0, min(rest, began + seconds - time.monotonic())))


def goes_on(state: JobState, after: str) -> str:
    """Say in words that a job had not ended when a wait was over."""
    if state.phase == "unknown":
        return f"whether job `{state.name}` has ended is not known after {after}: {state.reason}"
    return f"job `{state.name}` still {state.phase} after {after}"


def _look(handle: Handle, deadline: float | None) -> JobState | None:
    """Look at the job; None if that is not done by the `deadline`: nobody then waits for the hosts that do not answer."""
    if deadline is None:
        return state_of(handle, observe(handle))
    from concurrent import futures

    seen: futures.Future[JobState] = futures.Future()

    def look() -> None:
        try:
            seen.set_result(state_of(handle, observe(handle)))
        except BaseException as problem:
            seen.set_exception(problem)

    Thread(target=look, daemon=True, name="look").start()
    futures.wait([seen], min(max(0.0, deadline - time.monotonic()), TIMEOUT_MAX))
    return seen.result() if seen.done() else None


def _unseen(handle: Handle) -> JobState:
    """Return the state of a job of which nothing was seen."""
    from jobctl.jobspec.deploy.model.control import NOTHING
    from jobctl.jobspec.deploy.model.observed import Observed

    reason = f"no answer from {', '.join(handle.places())} yet"
    nothing = Observed(NOTHING, (), supervised=None, verdict=("unknown", reason))
    return JobState(handle.job.name, "unknown", reason, over=False, observed=nothing, unreachable={})


def wait_until_up(handle: Handle, reporter: Reporter, without: Collection[str] = ()) -> JobState:
    """Wait until every node runs, the job waits in a queue, or it has ended; return its state.

    Where nobody watches, launchers get their time to begin again after a failure; and hosts that do not answer theirs to
    answer again, except those that the job is started `without`. If none answers then, the phase is `unknown`.
    """
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase

    since, last, troubled = time.monotonic(), None, None
    with reporter.waiting() as waiting:
        while True:
            observed = observe(handle)
            now, reason = phase(observed)
            patience = _patience(observed, without)
            troubled = (time.monotonic() if troubled is None else troubled) if patience else None
            passes = troubled is not None and time.monotonic() - troubled < patience
            if now in ("pending", "running", "degraded", "unknown", *SETTLED) and not passes:
                return state_of(handle, observed)
            if reason != last:
                since, last = time.monotonic(), reason
            elif reason and time.monotonic() - since > LONG:
                since = float("inf")
                reporter.say(f"{now} for a while: {reason}")
            waiting.show(f"{now}: {reason or ''}", _counts(observed))
            pause(FAST_POLL_INTERVAL)


def _patience(observed: Observed, without: Collection[str]) -> float:
    """Return for how many seconds what is wrong may pass by itself: launchers decide about it, or hosts do not answer."""
    from jobctl.jobspec.deploy.model.observed import decides_alone, phase

    now, _ = phase(observed)
    generation = observed.control.generation
    if now == "degraded" and generation is not None and decides_alone(observed):
        return generation.host_timeout + AUTONOMY_MARGIN
    silent = any(not node.reachable and node.host not in without for node in observed.members)
    return UNHEARD if now == "unknown" or (now == "degraded" and silent) else 0.0


def _counts(observed: Observed) -> tuple[int, int]:
    ready = [node for node in observed.members if node.state in ("running", "exited")]
    return len(ready), len(observed.members)
