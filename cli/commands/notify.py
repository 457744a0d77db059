"""`jobctl notify`: whom a job notifies, and whether that works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobctl import console
from jobctl.options import Format, Job, Output
from jobctl.views.failure import Failed, command

if TYPE_CHECKING:
    from jobctl.jobspec.operations.inspect.notify import Recipients, Tested

HINT = "`notify` in the spec, or in ~/.config/jobctl/config.yaml, says whom it notifies of what"


@command
def notify(
    job: Job = None,
    test: Annotated[bool, typer.Option("--test", help="Send each of them a test message, and wait for it.")] = False,
    output: Output = Format.text,
) -> None:
    """Show whom a job notifies of what; with `--test`, try it.

    For a spec file, as `up` would read it now; for the name of a job that is up, as `up` has read it.

    Example: jobctl notify --test
    """
    from jobctl.jobspec.operations.inspect.notify import recipients_of, send_tests
    from jobctl.views.reporter import Terminal

    found = recipients_of(job, Terminal())
    if test and not found.channels:
        raise Failed("this job notifies nobody: no test was sent", 2, HINT)
    tests = []
    for one in send_tests(found) if test else ():
        tests.append(one)
        if output is Format.text:
            console.out(_answer(one))
    if output is Format.json:
        console.out_json(_json(found, tests))
    elif not test:
        _show(found)
    failed = [one for one in tests if not one.delivery.done]
    if failed:
        message = f"{len(failed)} of {len(tests)} did not take the test message"
        raise Failed("" if output is Format.json else message, 3 if len(failed) == len(tests) else 4)


def _show(found: Recipients) -> None:
    rows = [
        (", ".join(sorted(one.on)), one.key, str(found.waiting(one)), found.problem(one) or "-")
        for one in found.channels
    ]
    if not rows:
        console.say(f"this job notifies nobody: {HINT}")
        return
    if found.source == "up":
        console.out(console.table(("TOLD OF", "BY", "WAITING", "LAST PROBLEM"), rows))
    else:
        console.out(console.table(("TOLD OF", "BY"), [row[:2] for row in rows]))


def _answer(one: Tested) -> str:
    said = one.delivery.problem or one.delivery.answer or "it took the message"
    word = "ok" if one.delivery.done else "FAILED"
    return f"{word:6}  {one.channel.key}: {said} ({one.seconds:.1f} s)"


def _json(found: Recipients, tests: list[Tested]) -> dict[str, Any]:
    results = {one.channel.key: one for one in tests}
    return {
        "job": found.job,
        "source": found.source,
        "channels": [
            {
                "channel": one.key,
                "on": sorted(one.on),
                "waiting": found.waiting(one) if found.source == "up" else None,
                "problem": found.problem(one),
                "test": _test_json(results.get(one.key)),
            }
            for one in found.channels
        ],
    }


def _test_json(one: Tested | None) -> dict[str, Any] | None:
    if one is None:
        return None
    told = {"delivered": one.delivery.done, "answer": one.delivery.answer, "problem": one.delivery.problem}
    return {**told, "seconds": round(one.seconds, 3)}
