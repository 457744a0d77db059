"""What came of a command that changes what runs, waited for and told."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.console import Failed
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.options import Format
from jobctl.views.progress import Progress

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.plan.types import Plan

SETTLED = ("succeeded", "failed", "stopped")
LONG = 10.0  # seconds of waiting for the same after which that is said, also where there is no terminal


@dataclass(frozen=True, slots=True)
class Applied:
    """What `up` did: its steps, and the hosts of the job that did not do their part."""

    plan: Plan
    steps: tuple[Step, ...]
    failed: Failures
    ready: bool  # whether a generation of the job is under way
    held: bool = False  # whether a change was not made, and what ran before runs on
    supervised: bool = True  # whether a supervisor makes that change later

    @property
    def homes(self) -> frozenset[str]:
        """All hosts of the job."""
        return frozenset(node.host.name for node in self.plan.nodes)

    @property
    def code(self) -> int:
        """0 if all hosts did their part, 3 if none did, 4 if some did."""
        if not self.failed:
            return 4 if self.held else 0
        return 3 if self.homes <= set(self.failed) else 4


def tell_failures(failures: Failures) -> None:
    """Report each host that did not do its part."""
    for error in failures.values():
        console.error(error.message, error.hint)


def finish_up(deployer: Handle, done: Applied, *, follow: bool, output: Format) -> int:
    """Report what came of `up`, wait for what has to come, and return the exit code."""
    tell_failures(done.failed)
    if not done.steps and not done.failed:
        return _nothing_to_do(deployer, follow=follow, output=output)
    if not done.ready or (done.code == 3 and not done.held):
        _report_if(deployer, done, output)
        if output is Format.text:
            _say_partly(done)
        return done.code
    if done.held and output is Format.text:
        _say_held(done)
    if follow:
        from jobctl.following import follow_job

        return follow_job(deployer, output)
    if done.held:
        _report_if(deployer, done, output)
        return done.code
    return wait_until_up(deployer, output, done.failed) or done.code


def _say_held(done: Applied) -> None:
    hosts = ", ".join(sorted(done.homes & set(done.failed)))
    later = "its supervisor changes it once they can" if done.supervised else f"then `jobctl up {done.plan.job}` again"
    why = f": {hosts} cannot take part" if hosts else ""
    console.error(f"job `{done.plan.job}` goes on as it was{why}", f"the change needs all of its hosts; {later}")


def _report_if(deployer: Handle, done: Applied, output: Format) -> None:
    if output is Format.json:
        report(deployer, done.failed)


def _say_partly(done: Applied) -> None:
    plan, count, failed = done.plan, len(done.homes), len(done.homes & set(done.failed))
    needed = "as many as are needed" if plan.elastic else "all of them"
    if failed == count:
        console.error(f"job `{plan.job}` is not up: no host could do its part")
    else:
        console.error(
            f"{count - failed} of {count} hosts are ready; training begins when {needed} are",
            f"mend what is reported above, then `jobctl up {plan.job}` again: it does only what is missing",
        )


def _nothing_to_do(deployer: Handle, *, follow: bool, output: Format) -> int:
    from jobctl.jobspec.deploy.model.observed import phase

    now, _ = phase(deployer.observe())
    console.say(f"job `{deployer.job.name}` is {now} as the spec says; nothing to do")
    if output is Format.json:
        report(deployer)
    if follow and now != "succeeded":
        from jobctl.following import follow_job

        return follow_job(deployer, output)
    return 0


def wait_until_up(deployer: Handle, output: Format, failed: Failures) -> int:
    """Wait until every node runs, or the job has ended; show progress on a terminal."""
    from jobctl.jobspec.deploy.model.observed import phase

    since, last = time.monotonic(), None
    with Progress(quiet=output is Format.json) as progress:
        while True:
            observed = deployer.observe()
            now, reason = phase(observed)
            if now in ("running", "degraded", *SETTLED):
                break
            if reason != last:
                since, last = time.monotonic(), reason
            elif reason and time.monotonic() - since > LONG:
                since = float("inf")
                console.say(f"{now} for a while: {reason}")
            progress.show(f"{now}: {reason or ''}", _counts(observed))
            pause(0.05)
    if output is Format.json:
        report(deployer, failed)
        return 1 if now in ("failed", "degraded") and not failed else 0
    return _say_outcome(deployer, observed, now, reason)


def _counts(observed: Observed) -> tuple[int, int]:
    ready = [node for node in observed.members if node.state in ("running", "exited")]
    return len(ready), len(observed.members)


def report(deployer: Handle, failed: Failures | None = None) -> None:
    """Print the state of the job as JSON, with the hosts that did not do their part."""
    from jobctl.views.status import status_json

    console.out_json(
        {**status_json(deployer), "failed_hosts": [console.failure_json(h, e) for h, e in (failed or {}).items()]}
    )


def _say_outcome(deployer: Handle, observed: Observed, now: str, reason: str | None) -> int:
    name = deployer.job.name
    if now == "running":
        generation = observed.control.generation
        number = f", generation {generation.number}" if generation else ""
        console.say(
            f"job `{name}` runs: {_nodes(len(observed.members))}{number}."
            f" See `jobctl status {name}`, `jobctl logs {name} -f`, `jobctl wait {name}`"
        )
        return 0
    if now == "succeeded":
        console.say(f"job `{name}` succeeded")
        return 0
    console.error(f"job `{name}` {now}: {reason}", f"`jobctl logs {name}` shows what its processes printed")
    from jobctl.following import show_tail

    show_tail(observed)
    return 1


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def raise_code(code: int) -> None:
    """End the command with `code`, if it is not 0."""
    if code:
        raise Failed("", code)
