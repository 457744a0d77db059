"""The buttons of `jobctl ui --allow-actions`: what the commands of the same names do, in the background, one at a time for a job."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, get_args

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.operations.errors import NotYours, OperationError, PartlyDone, Refused
from jobctl.jobspec.operations.inspect.as_json import iso
from jobctl.jobspec.operations.reporter import Silent
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, FaultTarget
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.lifecycle.base import JobOnTarget
    from jobctl.jobspec.operations.lifecycle.drill import Drill, Fault

Verb = Literal["restart", "stop", "drill"]
VERBS: tuple[str, ...] = get_args(Verb)
VICTIMS = ("process", "container", "host")
MAX_ACTIONS = 10  # actions of one job that the page shows
MAX_ACTION_LINES = 100  # lines that are kept of what one action says
DRILL = 600.0  # seconds after which a drill is given up, as `jobctl drill` does


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to be done with a job; `node` and `victim` are for drills."""

    directory: JobDir
    verb: str
    node: str | None = None
    victim: str = "process"

    def checked(self) -> Wish:
        """Return it. Raises Refused if there is no such action."""
        if self.verb not in VERBS:
            raise Refused(f"there is no action `{self.verb}`", f"there are {', '.join(VERBS)}")
        if self.victim not in VICTIMS:
            raise Refused(f"a drill breaks no `{self.victim}`", f"it breaks a {', a '.join(VICTIMS)}")
        return self


@dataclass(slots=True)
class PageAction:
    """Something that is or was done. `state` is `running`, `done` or `failed`; `text` says what came of it."""

    number: int
    wish: Wish
    begun: float
    state: str = "running"
    text: str = ""
    said: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_ACTION_LINES))

    def to_json(self) -> dict[str, Any]:
        """Return what the page shows."""
        return {
            "number": self.number,
            "action": self.wish.verb,
            "job": self.wish.directory.name,
            "time": iso(self.begun),
            "state": self.state,
            "text": self.text,
            "said": list(self.said),
        }


class PageActions:
    """What is done with jobs through a page. Several threads may ask."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._of: dict[str, deque[PageAction]] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._count = 0

    def of(self, job: str) -> list[dict[str, Any]]:
        """Return the last actions on a job, the newest first."""
        with self._lock:
            return [one.to_json() for one in reversed(self._of.get(job, ()))]

    def ask(self, wish: Wish) -> str:
        """Return what would be done, in words. Raises OperationError or DeployError if it cannot be done now."""
        name = wish.checked().directory.name
        self._refuse_busy(wish.directory)
        with _running(wish) as job:
            if wish.verb == "restart":
                return _restart_words(name, job)
            if wish.verb == "stop":
                return _stop_words(name, job)
            return _drill_words(job, wish)

    def begin(self, wish: Wish) -> PageAction:
        """Begin to do it, and return at once. Raises NotYours if somebody is at work on the job, Refused for nonsense."""
        wish.checked()
        with self._lock:
            self._refuse_busy(wish.directory)
            self._count += 1
            action = PageAction(self._count, wish, self._clock())
            self._of.setdefault(wish.directory.name, deque(maxlen=MAX_ACTIONS)).append(action)
            thread = threading.Thread(target=self._do, args=(action,), daemon=True, name=f"{wish.verb}-{action.number}")
            self._threads[action.number] = thread
        thread.start()
        return action

    def _refuse_busy(self, directory: JobDir) -> None:
        from jobctl.jobspec.deploy.store.lock import Locked, read_holder

        mine = [one for one in list(self._of.get(directory.name, ())) if one.state == "running"]
        if mine:
            seconds = max(0.0, self._clock() - mine[0].begun)
            why = f"this page's `{mine[0].wish.verb}` for {seconds:.0f} s"
            raise NotYours(f"job `{directory.name}` is locked by {why}", "wait for it")
        holder = read_holder(directory.lock)
        if holder:
            raise NotYours(f"job `{directory.name}` is {Locked(holder)}", "wait for it")

    def _do(self, action: PageAction) -> None:
        state, text = "failed", ""
        try:
            text = _perform(action.wish, _Listener(action))
            state = "done"
        except (OperationError, DeployError) as error:
            text = ": ".join(filter(None, [error.message, error.hint]))
        except Exception as error:  # whatever it is, the page says that nothing goes on
            text = f"{type(error).__name__}: {error}"
        with self._lock:
            action.state, action.text = state, text
            del self._threads[action.number]

    def at_work(self) -> list[str]:
        """Return what is being done, in words."""
        with self._lock:
            every = [one for actions in self._of.values() for one in actions]
            return [f"`{one.wish.verb}` of job `{one.wish.directory.name}`" for one in every if one.state == "running"]

    def wait(self) -> None:
        """Return when everything that was begun is over."""
        for thread in list(self._threads.values()):
            thread.join()


class _Listener(Silent):
    """The reporter of an action: what it hears is shown on the page; lines about progress change too often for that."""

    def __init__(self, action: PageAction) -> None:
        self._said = action.said

    def say(self, text: str) -> None:
        self._said.append(text)

    def warn(self, message: str) -> None:
        self._said.append(f"warning: {message}")

    def error(self, message: str, hint: str | None = None) -> None:
        self._said.append(": ".join(filter(None, [f"error: {message}", hint])))

    def step(self, step: Step) -> None:
        self._said.append(str(step))


@contextmanager
def _running(wish: Wish) -> Iterator[JobOnTarget]:
    """Open the job with connections of its own, so that the page's looks go on meanwhile. Raises Refused if it is down."""
    from jobctl.jobspec.operations.lifecycle.open import running_job

    if wish.directory.job_record() is None:
        name = wish.directory.name
        raise Refused(f"job `{name}` is down", f"`jobctl up {name}` starts it")
    job = running_job(wish.directory.name)
    with closing(job.handle):
        yield job


def _restart_words(name: str, job: JobOnTarget) -> str:
    from jobctl.jobspec.deploy.model.observed import phase

    observed = job.handle.observe()
    now, _ = phase(observed)
    generation = observed.control.generation
    number = f"generation {generation.number + 1}" if generation else "the next generation"
    what = f"Job `{name}` is {now}. Its processes end, and {number} begins with a fresh budget of restarts."
    return f"{what} It goes on from its last checkpoint: the work since then is lost."


def _stop_words(name: str, job: JobOnTarget) -> str:
    from jobctl.jobspec.deploy.model.observed import phase
    from jobctl.jobspec.operations.lifecycle.applying import grace_of

    now, _ = phase(job.handle.observe())
    grace = f"{grace_of(job.handle, None):g} s"
    what = f"Job `{name}` is {now}. All of its processes get SIGTERM and {grace} to save, and then they are killed."
    return f"{what} Everything stays in place: `jobctl up {name}` resumes it from its last checkpoint."


def _drill_words(job: JobOnTarget, wish: Wish) -> str:
    from jobctl.jobspec.operations.lifecycle.drill import plan_drill, price_of

    deployer = job.breakable()
    return f"This {price_of(deployer, plan_drill(deployer, _victim(wish), wish.node))}."


def _victim(wish: Wish) -> FaultTarget:
    return wish.victim  # type: ignore[return-value]


def _perform(wish: Wish, listener: _Listener) -> str:
    """Do it, and return what came of it in words. Raises OperationError or DeployError."""
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.lifecycle.drill import plan_drill, run_drill

    name = wish.directory.name
    with _running(wish) as job:
        if wish.verb == "stop":
            stopped = job.stop(JobRequest(), listener)
            _raise_failures(name, stopped.failures)
            if unfinished := stopped.unfinished(name):
                raise PartlyDone(*unfinished)
            return f"job `{name}` is {stopped.phase}{' already' if stopped.already else ''}"
        if wish.verb == "restart":
            return _restart(name, job, listener)
        deployer = job.breakable()
        fault = plan_drill(deployer, _victim(wish), wish.node)
        return _drilled(fault, run_drill(deployer, fault, DRILL))


def _restart(name: str, job: JobOnTarget, listener: _Listener) -> str:
    from jobctl.jobspec.operations.errors import JobFailed
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.lifecycle.wait import wait_until_up

    done = job.restart(None, JobRequest(), listener)
    if not done.begins:
        raise PartlyDone(f"no new generation of job `{name}` begins: {_told(done.failed)}")
    _raise_failures(name, done.failed)
    state = wait_until_up(job.handle, listener)
    if state.phase == "unknown":
        raise PartlyDone(f"job `{name}` was told to begin again, and whether it runs is not known: {state.reason}")
    if state.phase in ("failed", "degraded"):
        raise JobFailed(f"job `{name}` {state.phase}: {state.reason}", "its logs show what its processes printed")
    return f"job `{name}` is {state.phase}, generation {state.generation}"


def _raise_failures(name: str, failures: Failures) -> None:
    if failures:
        raise PartlyDone(f"not all hosts of job `{name}` did their part: {_told(failures)}")


def _told(failures: Mapping[str, DeployError]) -> str:
    return "; ".join(error.message for error in failures.values()) or "no host could do its part"


def _drilled(fault: Fault, drill: Drill) -> str:
    from jobctl.jobspec.operations.errors import JobFailed

    seconds = drill.seconds
    times = (("noticed", seconds.detected), ("running", seconds.running), ("training", seconds.training))
    after = ", ".join(f"{what} after {at:.1f} s" for what, at in times if at is not None)
    what = f"{fault.words[1]}: {after}"
    if drill.continued is False:
        raise JobFailed(f"{what}; training began from the beginning", "see `jobctl drill`")
    return f"{what}; it went on from its checkpoint" if drill.continued else what
