"""How many files this process may have open: connections to many hosts take more than the limit that most systems set.

That soft limit, 1024, is there for programs that use select(2), which cannot watch higher numbers. What is here polls.
Programs that are started may use it, so each begins with the limit that this process began with.
"""

from __future__ import annotations

import resource
import select
from collections.abc import Callable

from jobctl.jobspec.deploy.model.errors import DeployError

# To which the limit is raised, unless hosts take more: hard limits may be a thousand million.
MAX_DESCRIPTORS = 65536
PER_HOST = 9  # files of a supervisor: the connection, and two for each of four channels that are polled
OTHERS = 32  # files beside those of hosts
_LIMIT = resource.RLIMIT_NOFILE
_before: list[tuple[int, int]] = []  # the limits that this process began with, once one was raised


def make_room(hosts: int) -> None:
    """Let this process open what connections to as many hosts take. Raises DeployError where the system does not."""
    if not hosts:
        return
    soft, hard = resource.getrlimit(_LIMIT)
    needed = hosts * PER_HOST + OTHERS
    most = max(MAX_DESCRIPTORS, needed)
    if hard != resource.RLIM_INFINITY:
        if hard < needed:
            message = f"{hosts} hosts take about {needed} open files, and a process on this machine may have {hard}"
            raise DeployError(message, RAISE_LIMIT)
        most = min(hard, most)
    if soft != resource.RLIM_INFINITY and soft < most:
        _before[:] = _before or [(soft, hard)]
        resource.setrlimit(_LIMIT, (most, hard))


RAISE_LIMIT = (
    "raise the hard limit, which `ulimit -Hn` shows: `nofile` in /etc/security/limits.conf, or LimitNOFILE= of the"
    " systemd unit that jobctl runs in"
)


def restore() -> None:
    """Give this process the limit that jobctl began with (runs between fork and exec)."""
    if _before:
        resource.setrlimit(_LIMIT, _before[0])


def for_child() -> Callable[[], None] | None:
    """Return the `preexec_fn` of a child that has nothing else to do before its program begins."""
    return restore if _before else None


def wait_for(file: object, seconds: float | None) -> bool:
    """Wait until something can be read from `file` (None: for ever), and say whether it can; its number may be high."""
    watch = select.poll()
    watch.register(file, select.POLLIN)  # type: ignore[arg-type]
    return bool(watch.poll(None if seconds is None else seconds * 1000))
