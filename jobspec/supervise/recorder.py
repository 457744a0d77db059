"""What a supervisor tells: the events of the job, how far it is, and what goes on, once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jobctl.jobspec.deploy.apply.clock import Clock
from jobctl.jobspec.deploy.model.observed import Observed, failure_words
from jobctl.jobspec.deploy.model.stragglers import stragglers
from jobctl.jobspec.deploy.store import events, history
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.report.event_log import key_of
from jobctl.jobspec.launcher.report.story import why_begun
from jobctl.jobspec.launcher.telling.words import id_of
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.render.payload import control_json
from jobctl.jobspec.supervise.changes import changes, failure_details
from jobctl.jobspec.supervise.decisions import Restart, Stay

PROGRESS = 5.0  # seconds between two records of progress

# The events after which nobody takes the job for one that waits.
_ENDS_WAIT = frozenset({"goes-on", "generation", "generation-begun", *events.ENDINGS})


class Recorder:
    """Writes down what happens to one job on this machine, and prints it to the supervisor's output."""

    def __init__(self, job: JobDir, clock: Clock, say: Callable[[str], None]) -> None:
        self.job, self.clock, self.say = job, clock, say
        self.seen: Observed | None = None
        self._known = events.KnownEvents(job.events)
        self._noticed: set[str] = set()  # what was told of nodes by this supervisor
        self._told: object = None  # what was said last of something that goes on
        self._may_wait = True  # whether the log may say, as the last that is known, that the job waits for a person
        self._begun: tuple[float, int] | None = None  # up to which generation it was told how processes were started
        self._told_of: Generation | None = None  # what launchers have begun by themselves was told up to this one
        # What was told of nodes once in a generation: when the job was brought up, number, node, event, kind of failure.
        self._told_of_nodes: set[tuple[float, int, int, str, str | None]] = set()
        self._progress: tuple[float, int, int] = (0.0, 0, -1)  # when it was recorded last, generation, step

    def record(self, kind: str, message: str, /, **details: object) -> None:
        """Record an event of now."""
        self._may_wait |= kind == "waiting" and details.get("lasting") is True
        events.record(self.job.events, self.clock.now(), kind, message, **details)
        self.say(message)

    def record_new(self, began: float, at: float, kind: str, message: str, /, **details: Any) -> None:
        """Record an event that launchers or a command may tell of too: once.

        `began`: when the job was brought up.
        """
        event = {"time": at, "event": kind, "message": message, **details}
        key = key_of(event)
        if key is None:
            events.record(self.job.events, at, kind, message, **details)
            self.say(message)
            return
        with contextlib.suppress(OSError):  # a full disk keeps nobody from what they do
            if self._known.add([{**event, "id": id_of(began, key)}]):
                self.say(message)

    def once(self, what: object, kind: str, message: str, /, **details: object) -> None:
        """Record something that goes on, once: until something else is recorded, or `forget` is called."""
        if self._told != what:
            self._told = what
            self.record(kind, message, **details)

    def forget(self) -> None:
        """Tell what goes on again the next time."""
        self._told = None

    def goes_on(self) -> None:
        """Take note that all is as it should be; record it if the log says that the job waits for a person."""
        self.forget()
        if self._may_wait:
            self._may_wait = False
            waited = _open_wait(events.read(self.job.events)[0])
            if waited is not None:
                self.record("goes-on", f"the job waits no longer: {waited}")

    def notice(self, observed: Observed) -> None:
        """Record what changed since the last look, and how far the job is."""
        self._tell_of_launchers(observed)
        self._tell_begun(observed)
        generation = observed.control.generation
        for kind, message, details in changes(self.seen, observed):
            key = key_of({"event": kind, **details})
            before = self.seen.node(details["node"]) if self.seen is not None else None
            again = key in self._noticed or (before is not None and before.state == "lost")  # that is news
            if generation is None or key is None or again:
                self.record(kind, message, **details)
            else:
                self._noticed.add(key)
                self.record_new(generation.began, self.clock.now(), kind, message, **details)
        self.seen = observed
        self._tell_stragglers(observed)
        self._keep_progress(observed)

    def is_news(self, failure: Failure, observed: Observed) -> bool:
        """Say whether neither we nor a supervisor before has recorded this failure of all nodes; take note that we do now."""
        generation = observed.control.generation
        return generation is None or not self._is_told(generation, failure.node, "failure", failure.kind)

    def failure(self, decision: Restart, observed: Observed) -> None:
        """Record the failure because of which all nodes are restarted."""
        failure = decision.failure
        wait = f", after {decision.delay:g} s" if decision.delay else ""
        step = "" if failure.progress is None else f" at step {failure.progress}"
        message = f"{decision.cause}{step}; restarting all nodes{wait}"
        self.forget()
        self.record("failure", message, **failure_details(failure, observed))

    def stay(self, decision: Stay, observed: Observed) -> None:
        """Record, once in a generation, that a node stays where it makes the others wait, and why."""
        generation = observed.control.generation
        if generation is None or self._is_told(generation, decision.node, "straggler-stays"):
            return
        message = f"node {decision.node} stays on {decision.host}, though it is a straggler: {decision.reason}"
        about = {"generation": generation.number, "node": decision.node, "host": decision.host}
        self.record("straggler-stays", message, **about)

    def generation(self, generation: Generation, number: int, why: str, at: float, by: str = "supervisor") -> None:
        """Record that a generation has begun."""
        self.record_new(
            generation.began,
            at,
            "generation",
            f"generation {number} begins: {why}",
            generation=number,
            cause=why,
            members=[member.node for member in generation.members],
            hosts={str(member.node): member.host for member in generation.members},
            port=generation.rendezvous.port,
            by=by,
        )

    def moved_meanwhile(self, generation: Generation, moves: Mapping[int, tuple[str | None, str]]) -> None:
        """Record that launchers, or a command on another machine, have moved nodes, from where and to where."""
        last = generation.autonomy.moved if generation.autonomy else None
        number = last.number if last is not None else generation.number
        machine = generation.origin.machine if generation.origin is not None else "another machine"
        whom = "by launchers" if last is not None else f"by a command on {machine}"
        for node, (origin, host) in sorted(moves.items()):
            about = {"generation": number, "node": node, "host": host, "from": origin}
            message = f"node {node} was moved from {origin} to {host} {whom}"
            self.record_new(generation.began, self.clock.now(), "moved", message, **about)

    def ending(self, observed: Observed) -> None:
        """Record how the job ended, if a supervisor was killed between that and its record."""
        result = observed.control.ledger.result
        if result is None or result.phase == "stopped":
            return
        since = [event for event in events.read(self.job.events)[0] if event["time"] >= result.at]
        generation = observed.control.generation
        if not any(event["event"] == result.phase for event in since) and generation is not None:
            self.end(generation, result.phase, result.reason, self.clock.now())

    def end(self, generation: Generation | None, phase: str, reason: str, at: float) -> None:
        """Record how the job ended, unless launchers have told that it ended so."""
        message = f"job {phase}: {reason}"
        if generation is None:
            self.record(phase, message)
        else:
            self.forget()
            self.record_new(generation.began, at, phase, message, generation=generation.number)

    def _tell_of_launchers(self, observed: Observed) -> None:
        """Record what launchers have decided by themselves, while no supervisor did."""
        generation = observed.control.generation
        if generation is None or generation.autonomy is None or generation == self._told_of:
            return
        self._told_of = generation
        by = "etcd" if generation.etcd_decides else "launchers"
        for failure in generation.autonomy.failures:
            cause = f"node {failure.node}: {failure_words(failure)}"
            about = failure_details(failure, observed)
            self.record_new(generation.began, failure.at, "failure", f"{cause}; the launchers decided", **about)
            if failure.generation < generation.number:
                self.generation(generation, failure.generation + 1, f"{cause} (the launchers agreed)", failure.at, by)

    def _tell_begun(self, observed: Observed) -> None:
        """Record how the processes of a generation were started, once all nodes have said so."""
        generation = observed.control.generation
        if generation is None or not observed.members or self._begun == (generation.began, generation.number):
            return
        ways = [node.start for node in observed.members if node.generation == generation.number and node.start]
        if len(ways) < len(observed.members):
            return
        self._begun = generation.began, generation.number
        cold = next((way for way in ways if not way.standby), None)
        told = [event for event in events.read(self.job.events)[0] if event["time"] >= generation.began]
        mine = [event for event in told if event.get("generation") == generation.number]
        begins = next((event for event in mine if event["event"] == "generation"), None) or _why_begun(generation)
        because = cold.cold_because if cold else None
        self.record_new(
            generation.began,
            self.clock.now(),
            "generation-begun",
            f"generation {generation.number} was started " + (f"cold: {because}" if cold else "from standby"),
            generation=generation.number,
            by=begins.get("by", "supervisor"),
            cause=begins.get("cause"),
            standby=cold is None,
            cold_because=because,
        )

    def _tell_stragglers(self, observed: Observed) -> None:
        """Record which nodes make the others wait, once in a generation for each."""
        generation = observed.control.generation
        if generation is None:
            return
        mine = [node for node in observed.members if node.generation == generation.number]
        for one in stragglers(mine):
            if self._is_told(generation, one.node, "straggler"):
                continue
            about = {"node": one.node, "rank": one.rank, "host": one.host}
            times = {"seconds": round(one.seconds, 6), "median": round(one.median, 6)}
            message = f"node {one.node} on {one.host} is a straggler: {one}"
            number, now = generation.number, self.clock.now()
            self.record_new(generation.began, now, "straggler", message, generation=number, **about, **times)

    def _is_told(self, generation: Generation, node: int, event: str, kind: str | None = None) -> bool:
        """Say whether an event of a node of this generation was recorded, by us or by a supervisor before; take note of it.

        `kind`: of the failure, if it is one. That of a node which began again alone is another matter.
        """
        key = generation.began, generation.number, node, event, kind
        if key in self._told_of_nodes:
            return True
        self._told_of_nodes.add(key)
        wanted = event, generation.number, node, kind
        return any(
            (one["event"], one.get("generation"), one.get("node"), one.get("kind")) == wanted
            for one in events.read(self.job.events)[0]
            if one["time"] >= generation.began and one.get("alone") is not True
        )

    def _keep_progress(self, observed: Observed) -> None:
        """Record how far the job is: now and then, and whenever a generation has made its first step."""
        steps = [node.progress for node in observed.members if node.progress is not None]
        generation = observed.control.generation
        if not steps or generation is None or any(node.generation != generation.number for node in observed.members):
            return
        at, number, step = self._progress
        now = self.clock.now()  # somebody may have set it back
        if max(steps) != step and (abs(now - at) >= PROGRESS or number != generation.number):
            self._progress = now, generation.number, max(steps)
            history.record_progress(self.job.progress, now, generation.number, max(steps))


def _why_begun(generation: Generation) -> Mapping[str, Any]:
    """Return who has begun a generation, and why, as its launchers tell it: nothing else was recorded of it."""
    return why_begun(Order.from_json(json.loads(control_json(generation))))


def _open_wait(told: Iterable[Mapping[str, Any]]) -> str | None:
    """Return what the job waits for by its log, None if it waits for nodes, which tell that they run, or for nothing."""
    waits = None
    for event in told:
        kind = event["event"]
        begins = kind == "step" and event.get("step") == "generation"
        fails = kind == "failure" and event.get("alone") is not True
        if kind == "waiting" and event.get("lasting") is True and "id" not in event:
            waits = None if event.get("nodes") else str(event["message"])
        elif kind in _ENDS_WAIT or begins or fails:
            waits = None
    return waits
