"""What came of taking jobs down, for people and as JSON; and the exit code that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.jobspec.deploy.model.errors import NotCollected, UnlistedHost, may_be_gone
from jobctl.jobspec.operations.errors import OperationError
from jobctl.options import Format
from jobctl.views.failure import error_json
from jobctl.views.outcome import tell_failures

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures
    from jobctl.jobspec.operations.lifecycle.down import TakenDown

DONE, NOWHERE, PARTLY = 0, 3, 4


def finish_down(name: str, done: TakenDown, output: Format) -> int:
    """Report what came of `down` of one job, and return the exit code."""
    say_down(name, done)
    if output is Format.json:
        console.out_json(_json(name, done))
    return _code(done)


def finish_downs(results: Sequence[tuple[str, TakenDown | OperationError]], output: Format) -> int:
    """Report what came of `down` of several jobs, and return the exit code."""
    if output is Format.json:
        console.out_json({"jobs": [_json(name, done) for name, done in results]})
    codes = [_code(done) for _, done in results]
    left = [name for (name, _), code in zip(results, codes, strict=True) if code != DONE]
    if left:
        again = f"`jobctl down {' '.join(left)}` again takes them down once that is fixed"
        console.error(f"{len(left)} of {len(results)} jobs are not down: {', '.join(left)}", again)
    return code_of_all(codes)


def code_of_all(codes: Sequence[int]) -> int:
    """Return the exit code for several jobs: that of all, 4 if some are down and others are not, otherwise the first one's."""
    if DONE in codes or PARTLY in codes:
        return DONE if set(codes) == {DONE} else PARTLY
    return codes[0]


def say_down(name: str, done: TakenDown) -> None:
    """Tell a person what came of `down` of one job."""
    if not done.anything:
        where = "on this machine" if done.hosts == ("localhost",) else f"on {', '.join(done.hosts)}"
        console.say(f"nothing of job `{name}` is {where}")
        return
    logs = f"; its logs are in {done.logs}" if done.logs else ""
    if done.lost:
        gone = ", ".join(sorted(done.lost))
        again = f"if a host comes back, `jobctl down {name} --hosts FILE` removes the rest"
        console.warning(f"no answer from {gone}: `down` gave up what job `{name}` has there; {again}")
    if not done.failed:
        console.say(f"job `{name}` is down{logs}")
        return
    tell_failures(done.failed)
    if _code(done) == NOWHERE:
        console.error(f"job `{name}` is not down{logs}", _again(name, done.failed))
        return
    console.error(f"job `{name}` is down, but not on {', '.join(sorted(done.failed))}{logs}", _again(name, done.failed))


def _again(name: str, failed: Failures) -> str:
    """Return the remedy where something is left on some hosts."""
    again = f"`jobctl down {name}` again cleans up there once that is fixed"
    silent = [host for host, error in sorted(failed.items()) if may_be_gone(error)]
    gone = [host for host in silent if not isinstance(failed[host], UnlistedHost)]  # these were not even asked
    return f"{again}; `--lost {gone[0]}` gives up what is there if that host is gone for good" if gone else again


def _code(done: TakenDown | OperationError) -> int:
    if isinstance(done, OperationError):
        return done.exit_code
    if not done.failed:
        return DONE
    ended = any(isinstance(error, NotCollected) for error in done.failed.values())
    return NOWHERE if set(done.failed) >= set(done.hosts) and not ended else PARTLY


def _json(name: str, done: TakenDown | OperationError) -> dict[str, Any]:
    if isinstance(done, OperationError):
        return {"job": name, "down": False, "hosts": [], "lost": [], "logs": None, **error_json(done)}
    hosts = [_host_json(host, {**done.failed, **done.lost}) for host in done.hosts]
    logs = str(done.logs) if done.logs else None
    return {"job": name, "down": not done.failed, "hosts": hosts, "lost": sorted(done.lost), "logs": logs}


def _host_json(host: str, failed: Failures) -> dict[str, Any]:
    error = failed.get(host)
    reachable = error is None or isinstance(error, NotCollected)
    return {"host": host, "reachable": reachable, "error": error.message if error is not None else None}
