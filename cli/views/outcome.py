"""What came of an operation that changes what runs, for people and as JSON; and the exit code that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from jobctl import console
from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.operations.errors import failures_json
from jobctl.jobspec.operations.inspect.as_json import status_json
from jobctl.jobspec.operations.inspect.status import observe
from jobctl.options import Format
from jobctl.views.failure import Failed
from jobctl.views.reporter import Terminal
from jobctl.views.status import show_tail

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.operations.inspect.status import JobState
    from jobctl.jobspec.operations.lifecycle.base import Applied, JobChange, Restarted, Stopped


def raise_code(code: int) -> None:
    """End the command with `code`, if it is not 0."""
    if code:
        raise Failed("", code)


def raise_unseen(handle: Handle) -> None:
    """End the command with 3 if none of the job's hosts has answered, with 4 if some have not."""
    if handle.failures:
        raise typer.Exit(3 if set(handle.failures) >= set(handle.places()) else 4)


def tell_failures(failures: Failures) -> None:
    """Report each host that did not do its part."""
    for error in failures.values():
        console.error(error.message, error.hint)


def report(handle: Handle, failed: Failures | None = None, *, in_line: bool = False) -> None:
    """Print the state of the job as JSON, with the hosts that did not do their part; on one line where streams are."""
    console.out_json({**status_json(handle), "failed_hosts": failures_json(failed or {})}, in_line=in_line)


def show_steps(whole: dict[str, Any], change: JobChange, silent: Failures, output: Format) -> None:
    """Print steps; in JSON beside `whole`, which names the job, and the hosts that did not answer."""
    from jobctl.jobspec.operations.resolve.drift import unnamed

    if output is Format.json:
        steps = [{"kind": step.kind, "target": step.target, "cause": step.cause} for step in change.steps]
        changes = [one.to_json() for one in change.changed]
        console.out_json({**whole, "changes": changes, "steps": steps, "failed_hosts": failures_json(silent)})
        return
    for step in change.steps:
        console.out(str(step))
    rest = unnamed(change.changed, change.steps)
    for one in rest:
        console.out(one.line)
    if not change.steps and not rest:
        console.say(f"nothing to do: job `{whole['job']}` is {change.phase} as the spec says")


def finish_up(handle: Handle, done: Applied, *, follow: bool, output: Format) -> int:
    """Report what came of `up`, wait for what has to come, and return the exit code."""
    from jobctl.jobspec.operations.resolve.drift import unnamed

    if output is Format.text:
        for one in unnamed(done.changed, done.steps):
            console.say(one.line)
    tell_failures(done.failed)
    if not done.steps and not done.failed:
        return _nothing_to_do(handle, follow=follow, output=output)
    if not done.ready or (done.code == 3 and not done.held):
        if output is Format.json:
            report(handle, done.failed, in_line=follow)
        if output is Format.text:
            _say_partly(done)
        return done.code
    if done.held and output is Format.text:
        _say_held(done)
    if follow:
        from jobctl.views.logs import follow_job

        return follow_job(handle, output)
    if done.held:
        if output is Format.json:
            report(handle, done.failed)
        return done.code
    return _wait_until_up(handle, output, done.failed) or done.code


def finish_restart(handle: Handle, done: Restarted, output: Format) -> int:
    """Report what came of `restart`, wait until the job runs, and return the exit code."""
    tell_failures(done.failed)
    if not done.begins:
        name = handle.job.name
        first = "fix what is reported above" if done.failed else f"`jobctl status {name}` says how its nodes are"
        console.error(f"job `{name}` has not begun again", f"{first}, then `jobctl restart {name}`")
        if output is Format.json:
            report(handle, done.failed)
        return 4
    return _wait_until_up(handle, output, done.failed) or (4 if done.failed else 0)


def finish_stop(handle: Handle, done: Stopped, output: Format) -> int:
    """Report what came of `stop`, and return the exit code."""
    name = handle.job.name
    tell_failures(done.failures)
    if unfinished := done.unfinished(name):
        console.error(*unfinished)
    elif done.already:
        console.say(f"job `{name}` is {done.phase} already")
    else:
        kept = f"; its logs are in {done.logs}" if done.logs else ""
        console.say(f"job `{name}` stopped; `jobctl up` resumes it from its last checkpoint{kept}")
    if output is Format.json:
        report(handle, done.failures)
    return 4 if done.failures or done.left else 0


def _say_held(done: Applied) -> None:
    hosts = ", ".join(sorted(done.homes & set(done.failed)))
    later = "its supervisor changes it once they can" if done.supervised else f"then `jobctl up {done.plan.job}` again"
    why = f": {hosts} cannot take part" if hosts else ""
    console.error(f"job `{done.plan.job}` goes on as it was{why}", f"the change needs all of its hosts; {later}")


def _say_partly(done: Applied) -> None:
    plan, count, failed = done.plan, len(done.homes), len(done.homes & set(done.failed))
    needed = "as many as are needed" if plan.elastic else "all of them"
    if failed == count:
        console.error(f"job `{plan.job}` is not up: no host could do its part")
    elif not failed:
        console.error(
            f"job `{plan.job}` has not begun: too few of its nodes can take part",
            f"`jobctl status {plan.job}` says how they are; `jobctl up {plan.job}` again does only what is missing",
        )
    else:
        console.error(
            f"{count - failed} of {count} hosts are ready; training begins when {needed} are",
            f"fix what is reported above, then `jobctl up {plan.job}` again: it does only what is missing",
        )


def _nothing_to_do(handle: Handle, *, follow: bool, output: Format) -> int:
    from jobctl.jobspec.deploy.model.observed import phase

    observed, name = observe(handle), handle.job.name
    now, reason = phase(observed)
    if now == "unknown" or any(not node.reachable for node in observed.members):  # since `up` has looked
        console.say(f"job `{name}` was as the spec says; nothing to do. By now it is {now}: {reason}")
    else:
        console.say(f"job `{name}` is {now} as the spec says; nothing to do")
    if follow and now != "succeeded":
        from jobctl.views.logs import follow_job

        return follow_job(handle, output)
    if output is Format.json:
        report(handle, in_line=follow)
    return 0


def _wait_until_up(handle: Handle, output: Format, failed: Failures) -> int:
    """Wait until every node runs, or the job has ended; report that, and return the exit code."""
    from jobctl.jobspec.operations.lifecycle.wait import wait_until_up

    state = wait_until_up(handle, Terminal(output), failed)
    if output is Format.json:
        report(handle, failed)
    if state.phase in _GOES_WELL:
        if output is Format.text:
            _say_outcome(handle, state)
        return 0
    name = handle.job.name
    if state.phase == "unknown":
        message = f"job `{name}` was started, and whether it runs is not known: {state.reason}"
        console.error(message, f"`jobctl status {name}` shows it once they answer; what was started goes on")
        return 4
    console.error(
        f"job `{name}` {state.phase}: {state.reason}", f"`jobctl logs {name}` shows what its processes printed"
    )
    show_tail(state.observed)
    if state.phase == "degraded" and failed:
        return 0  # where hosts did not do their part, the code says that
    silent = any(not node.reachable for node in state.observed.members)
    return 4 if state.phase == "degraded" and silent else 1


_GOES_WELL = ("running", "pending", "succeeded")


def _say_outcome(handle: Handle, state: JobState) -> None:
    name, observed = handle.job.name, state.observed
    if state.phase == "running":
        generation = observed.control.generation
        number = f", generation {generation.number}" if generation else ""
        console.say(
            f"job `{name}` runs: {counted(len(observed.members), 'node')}{number}."
            f" See `jobctl status {name}`, `jobctl logs {name} -f`, `jobctl wait {name}`"
        )
    elif state.phase == "pending":
        console.say(f"job `{name}` is queued: {state.reason}. `jobctl wait {name}` waits for its end")
    else:
        console.say(f"job `{name}` succeeded")
