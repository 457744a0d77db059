"""What runs in a rank's own interpreter before its script: import the framework, wait, and leave no trace.

The interpreter is started with the very command of the rank, and with a folder ahead on PYTHONPATH whose
`sitecustomize` calls `park`. So Python itself runs the script once `park` returns: argv, `__main__`, tracebacks, signals,
standard streams, /proc/self/cmdline and exit codes are those of a cold start because they are made by the same code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.standby.imports import NotClean, Preloaded, unclean
from jobctl.jobspec.launcher.standby.messages import RankPreparation, RankStart, StandbyNews

if TYPE_CHECKING:
    from typing import Optional, Tuple, Union

    from jobctl.jobspec.launcher.standby.messages import TrialOutcome
    from jobctl.jobspec.launcher.system.files import Json
REACHED = 77  # exit code of the probe: this interpreter runs `sitecustomize` first
OUT_OF_MEMORY, GROUP = "/proc/self/oom_score_adj", "/proc/%s/autogroup"
LOWEST = 19
FIRST_TO_GO = "1000"  # the kernel ends what only waits before what trains

PROBE = "probe"  # what JOBCTL_STANDBY holds where nothing is wanted but that exit code
MODULE = "jobctl_standby"  # the name of this program in the folder of the hook
# What sitecustomize.py holds: whatever goes wrong in it, the script must not run. Until here files could grow to no size:
# a script that ran in the place of this could write into none.
HOOK = f"""\
try:
    import os, sys
    if os.environ["JOBCTL_STANDBY"] == {PROBE!r}:
        os._exit({REACHED})
    import json, resource
    size = json.loads(os.environ["JOBCTL_STANDBY"])["fsize"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    import {MODULE}
    del sys.modules[{MODULE!r}]
    found = {MODULE}.park()
except BaseException as error:
    import os, sys
    sys.stderr.write("standby: %r\\n" % (error,))
    os._exit(70)
del json, os, resource, size, sys, {MODULE}
if not found:
    raise ImportError("no sitecustomize", name="sitecustomize")  # as if there were none, which `site` takes for that
"""


def park() -> bool:
    """Import, wait until this rank is wanted, and return to the interpreter; say whether there is a further sitecustomize."""
    task = RankPreparation.from_json(json.loads(os.environ.pop("JOBCTL_STANDBY")))
    sys.path.remove(task.folder)
    sys.path_importer_cache.pop(task.folder, None)
    os.set_inheritable(task.fd, False)
    give_back("PYTHONPATH", task.pythonpath)
    found = next_sitecustomize()
    score = yield_memory()
    cores = yield_cores(idle=True)
    try:
        preloaded = Preloaded(task)
    except NotClean as problem:
        tell(task.fd, StandbyNews(off=str(problem)))
        os._exit(0)
    take_cores(*cores)
    before = preloaded.signature()
    tell(task.fd, StandbyNews(ready=True))
    said = hear(task.fd)
    if said is None:
        os._exit(0)
    start = RankStart.from_json(said)
    try:
        unclean(task.fd)
        if preloaded.signature() != before:
            raise NotClean("what is installed has changed")
        stale = preloaded.changed_variable(start.environ)
        if stale is not None:
            raise NotClean("the variable %s, which an import has read, has changed" % stale)
        if score is not None:
            write(OUT_OF_MEMORY, score)
    except (NotClean, OSError) as problem:
        tell(task.fd, StandbyNews(cold=str(problem)))
        os._exit(0)
    os.environ.clear()  # of C's too
    os.environ.update(start.environ)
    tell(task.fd, StandbyNews(go=True))
    os.close(task.fd)
    preloaded.hide(start.cold)
    return found


def give_back(name: str, value: Optional[str]) -> None:
    """Set a variable to what it was, None for not there."""
    if value is None:
        del os.environ[name]
    else:
        os.environ[name] = value


def next_sitecustomize() -> bool:
    """Run the sitecustomize that this one stands before; say whether there is one."""
    mine = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = mine  # until it has raised by itself
        return False
    return True


# Cores and memory: what waits must cost the job nothing.


def yield_cores(idle: bool) -> Tuple[Optional[int], Optional[int]]:
    """Run when nobody else wants to (`idle`), or after others; return what `take_cores` undoes it with.

    Where the kernel shares cores among sessions first, policies count within one alone: the session has to yield, too.
    """
    policy, group = os.sched_getscheduler(0), group_nice()
    try:
        if group is not None:
            set_group_nice(LOWEST)
    except OSError:
        group = None
    try:
        if policy == os.SCHED_OTHER:
            low = os.SCHED_IDLE if idle and may_leave_idle() else os.SCHED_BATCH
            os.sched_setscheduler(0, low, os.sched_param(0))
            return policy, group
    except OSError:
        pass
    return None, group


def may_leave_idle() -> bool:
    """Say whether this process could leave SCHED_IDLE again: that takes a privilege, and SCHED_BATCH does not."""
    import resource

    with open("/proc/self/status") as file:
        capable = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:")) >> 23 & 1
    limit = resource.getrlimit(resource.RLIMIT_NICE)[0]
    return bool(capable) or limit == resource.RLIM_INFINITY or 20 - limit <= os.nice(0)


def take_cores(policy: Optional[int], group: Optional[int], pid: str = "self") -> None:
    """Have a process run by a policy, with all threads that an import has begun, and its session as before. Raises OSError."""
    if policy is not None:
        for thread in os.listdir("/proc/%s/task" % pid):
            os.sched_setscheduler(int(thread), policy, os.sched_param(0))
    if group is not None:
        set_group_nice(group, pid)


def group_nice() -> Optional[int]:
    """Return how nice this process's session is to others, None where the kernel does not ask."""
    try:
        with open(GROUP % "self") as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def set_group_nice(value: int, pid: str = "self") -> None:
    """Have a session be so nice to others. Raises OSError."""
    for _ in range(20):
        try:
            write(GROUP % pid, str(value))
            return
        except BlockingIOError:  # the kernel lets this be done ten times a second, by all together
            time.sleep(0.1)
    raise OSError("the session stays as it is")


def yield_memory() -> Optional[str]:
    """Make the kernel end this process first where memory is short; return its score before, None if that stays."""
    try:
        with open(OUT_OF_MEMORY) as file:
            score = file.read().strip()
        write(OUT_OF_MEMORY, FIRST_TO_GO)
        return score
    except OSError:
        return None


def write(path: str, text: str) -> None:
    """Write a file of /proc."""
    with open(path, "w") as file:
        file.write(text)


# The channel to the guard: a line of JSON each way.


def tell(channel: int, news: Union[StandbyNews, TrialOutcome]) -> None:
    """Say how this process is."""
    data = json.dumps(news.to_json()).encode() + b"\n"
    while data:
        data = data[os.write(channel, data) :]


def hear(channel: int) -> Optional[Json]:
    """Return the next message, None if there will be none."""
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(channel, 65536)
        if not more:
            return None
        data += more
    said: Json = json.loads(data.decode())
    return said


def hear_news(channel: int) -> Optional[StandbyNews]:
    """Return how the process at the other end is, None if it has ended."""
    said = hear(channel)
    return None if said is None else StandbyNews.from_json(said)
