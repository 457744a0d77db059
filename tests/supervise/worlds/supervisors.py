"""The supervisors of a simulated world (world.py), and their links to hosts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.apply.generations import longest_lease, moves_of
from jobctl.jobspec.deploy.apply.reconcile import Wanted, reconcile
from jobctl.jobspec.deploy.model.control import NOTHING, Control, JobResult, Ledger, age, newest
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, State
from jobctl.jobspec.deploy.model.tick import tick_of
from jobctl.jobspec.launcher.peers.lease import take_answer
from jobctl.jobspec.launcher.report.node_report import StandbyState
from jobctl.jobspec.plan.generation import Generation, Member, OldPlace, Origin, Standing
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import Change, Decision, GiveUp, Grow, Leave, Repair, Restart, Succeed, World
from jobctl.jobspec.supervise.host_loss import left_to_launchers
from jobctl.jobspec.supervise.loop import CONFIRM_TIMEOUT
from jobctl.jobspec.supervise.timers import UNFIT, Joining, Waited
from tests.tools.failures import dead_launcher

if TYPE_CHECKING:
    from .world import Host, Launcher, Sim

OWN = -2  # in the place of a node: a host keeps the name of its supervisor
CUT = 12.0  # seconds after which a supervisor gives up a connection
IMPORTS = 3.0  # seconds until a launcher has its standby ready
NOT_COUNTED = "more nodes"  # why a generation began that costs nothing


def state_of(machine: str) -> str:
    """Return the name of the state directory of a machine: `s0` and `s1` share theirs, `b0` has another one."""
    return machine[0]


@dataclass
class Link:
    """Between a supervisor and a host: queues of both directions."""

    whole: bool = True
    since: float = 0.0
    open: bool = False
    heard: float = 0.0
    up: list[tuple[float, Any]] = field(default_factory=list)
    down: list[tuple[float, Any]] = field(default_factory=list)


class Supervisor:
    """As supervise/loop.py does it, on what was heard."""

    def __init__(self, sim: Sim, machine: str) -> None:
        self.sim, self.machine, self.alive, self.paused = sim, machine, True, False
        self.detector = sim.bugs.detector(lambda: self.sim.now, f"{machine}{sim.count()}")
        self.links = {name: Link(whole=sim.is_whole(machine, name)) for name in sim.hosts}
        self.control = NOTHING
        self.reached: dict[str, bool] = {}  # hosts, and whether they can be reached, as this look has found them
        self.unfit: dict[str, float] = {}  # hosts that could not start a node, and when
        self.not_before: dict[str, float] = {}  # by the generation that failed
        self.began = sim.now
        self.joining, self.waited = Joining(), Waited()
        self.behind: float | None = None  # since when hosts tell less than it knows

    @property
    def plan(self) -> dict[int, str]:
        """Where nodes are to be, as the state directory of its machine has it."""
        return self.sim.plans[state_of(self.machine)]

    @property
    def standing(self) -> Standing:
        """What it knows of the job."""
        state = state_of(self.machine)
        return Standing(Origin(self.machine, state, str(sorted(self.plan))), self.sim.agreed.get(state))

    def turn(self) -> None:
        if not self.alive:
            return
        for name, link in self.links.items():
            link.whole = self.sim.is_whole(self.machine, name)
            self.carry(self.sim.hosts[name], link)
        if not self.paused and self.sim.now - self.began > 1.0:
            self.look()

    def carry(self, host: Host, link: Link) -> None:
        """What the network does, and the host's end of the channel."""
        now = self.sim.now
        if link.open and now - link.heard > CUT and not self.paused:
            link.open, link.up, link.down = False, [], []
        if not link.whole:
            return
        if link.open and host.follower is not self:
            link.open, link.up, link.down = False, [], []
        if not link.open and host.acts and not self.paused:
            self.connect(host, link)
        while link.down and link.down[0][0] <= now and host.acts and link.open:
            _, (node, name, echo) = link.down.pop(0)
            host.follower_heard = now
            if node == OWN:
                host.followed_by = self.machine
            for launcher in host.launchers:
                if launcher.node == node and take_answer(launcher.lease, name, echo):
                    launcher.echo = echo
                    launcher.places.note_supervisor(echo.partition(":")[0], now)
        while link.up and link.up[0][0] <= now and not self.paused:
            self.hear(host, link, link.up.pop(0)[1])

    def connect(self, host: Host, link: Link) -> None:
        if host.follower not in (None, self):
            other = host.follower
            if other is not None and (other.began, other.machine) < (self.began, self.machine):
                self.sim.end(self)
            return
        if host.followed_by not in ("", self.machine):
            self.detector.succeed()
        else:
            host.followed_by = self.machine
        host.follower, host.follower_heard = self, self.sim.now
        link.open, link.heard = True, self.sim.now

    def hear(self, host: Host, link: Link, line: Any) -> None:
        link.heard = self.sim.now
        self.detector.hear_host(host.name)
        if host.followed_by != self.machine and self.detector.may_own():
            link.down.append((self.sim.later(host.name, 1), (OWN, "", "")))
        if line == "t":
            link.down.append((self.sim.later(host.name, 1), (-1, "", "")))
            return
        answer = self.detector.hear(tick_of(line), host.name)
        if answer is not None:
            link.down.append((self.sim.later(host.name, 1), (line["node"], *answer.split())))

    def reaches(self, name: str) -> bool:
        return self.reached[name]

    def tries(self, name: str) -> bool:
        """Say whether a host can be reached now."""
        link, host = self.links[name], self.sim.hosts[name]
        return link.whole and link.open and host.acts and self.detector.seconds_overdue(name) is None

    def look(self) -> None:
        self.reached = {name: self.tries(name) for name in self.sim.hosts}
        reached = [host for name, host in self.sim.hosts.items() if self.reaches(name)]
        found = [Control(g, host.ledger) for host in reached for g in host.generations()]
        if not found:
            return
        self.control = self.known(found)
        generation = self.control.generation
        if generation is None:
            return
        self.detector.expect(generation)
        if self.is_behind(generation):
            return
        self.unfit = {host: at for host, at in self.unfit.items() if self.sim.now - at < UNFIT}
        homes = self.control.placement
        there = {node: name for node, name in homes.items() if self.reaches(name)}
        missing = [n for n, name in there.items() if all(x.node != n for x in self.sim.hosts[name].launchers)]
        self.detector.miss(dict.fromkeys(missing, self.sim.now))
        self.detector.vacate(dict.fromkeys(self.empty(generation), self.sim.now))
        taken = {*homes.values(), *self.plan.values(), *self.unfit}
        world = World(
            self.detector.cleared(),
            self.detector.too_few(),
            tuple(host.name for host in reached if host.name not in taken),
            self.plan,
            self.sim.least,
            standing=self.standing,
            unfit=frozenset(self.unfit),
            refusing={host: f"{host}: cannot start a node" for host in self.unfit},
            patient=frozenset(self.plan),
        )
        observed = self.observe(generation)
        world = replace(world, joining=self.joining.look(observed, self.sim.now), waited=self.waited.so_far)
        decision = decide(observed, self.sim.policy, self.sim.now, world)
        self.detector.left = left_to_launchers(decision, observed)
        self.waited.look(decision, observed, self.sim.now)
        self.act(decision, generation)

    def empty(self, generation: Generation) -> list[OldPlace]:
        """Return the old places whose hosts answer, and have nothing of the node."""
        places = generation.moves.places if generation.moves else ()
        here = [place for place in places if self.reaches(place.host)]
        return [place for place in here if not self.sim.hosts[place.host].has(place.node)]

    def known(self, found: list[Control]) -> Control:
        """Return the newest of what was found, or known before: hosts that do not answer may have it."""
        return newest(found if all(self.reached.values()) else [*found, self.control])

    def is_behind(self, generation: Generation) -> bool:
        """Say whether hosts tell less than we know, as the supervisor's loop does."""
        if generation == self.detector.generation:
            self.behind = None
            return False
        self.behind = self.sim.now if self.behind is None else self.behind
        if self.sim.now - self.behind > CONFIRM_TIMEOUT:
            self.detector.begin_anew()
        return True

    def act(self, decision: Decision, generation: Generation) -> None:
        """Do what was decided about the newest generation."""
        homes = self.control.placement
        if isinstance(decision, Restart):
            due = self.not_before.setdefault(generation.rendezvous.id, self.sim.now + decision.delay)
            if self.sim.now >= due:
                self.plan.update(decision.moves)
                ledger = self.control.ledger.with_failure(decision.failure)
                excluded = tuple(sorted({*ledger.excluded, *decision.exclude}))
                self.begin(
                    {**homes, **decision.moves}, decision.without, replace(ledger, excluded=excluded), decision.cause
                )
        elif isinstance(decision, Grow) and decision.joins:
            self.bring_in(decision.joins, generation)
        elif isinstance(decision, Grow):
            more = {node: host for node, host in self.plan.items() if node not in homes and host in decision.hosts}
            self.begin({**homes, **more}, frozenset(), self.control.ledger, NOT_COUNTED)
        elif isinstance(decision, Change) and generation.is_paused:  # no lock keeps it from a `stop` here
            self.begin(homes, frozenset(), self.control.ledger.renewed(self.sim.now, None, None), decision.cause)
        elif isinstance(decision, Repair):
            self.repair(self.observe(generation))
        elif isinstance(decision, GiveUp):
            whole = self.sim.all_train() and self.sim.training() >= self.sim.wanted()
            self.sim.given_up.append((decision.reason, whole))
            ledger = self.control.ledger
            ledger = ledger.with_failure(decision.failure) if decision.failure else ledger
            self.end_as(JobResult("failed", decision.reason, self.sim.now), ledger)
        elif isinstance(decision, Succeed):
            self.end_as(JobResult("succeeded", "all nodes ended with code 0", self.sim.now), self.control.ledger)
        elif isinstance(decision, Leave):
            self.sim.end(self)

    def bring_in(self, joins: Collection[int], generation: Generation) -> None:
        """Start nodes that join, in no generation yet."""
        for node in joins:
            name = self.plan[node]
            self.sim.hosts[name].remove({node})
            if self.can_start(node, name):
                self.sim.hosts[name].launchers.append(self.sim.launcher(self.sim.hosts[name], node))
                self.send(self.sim.hosts[name])
                self.joining.started(self.observe(generation), [node], self.sim.now)

    def observe(self, generation: Generation) -> Observed:
        nodes, belongs = _idle(self, generation), self.homes(generation)
        for member in generation.members:
            host = self.sim.hosts[member.host]
            if not self.reaches(member.host):
                nodes.append(ObservedNode(member.node, "trainer", member.host, "lost", reachable=False))
                continue
            launcher = next((x for x in host.launchers if x.node == member.node), None)
            nodes.append(_observed(member, launcher, generation, host.done.get(member.node)))
        strays = [
            ObservedNode(x.node, "trainer", name, "fenced", container="c")
            for name, host in self.sim.hosts.items()
            for x in host.launchers
            if self.reaches(name) and name != belongs.get(x.node)
        ]
        outdated = [
            m.host
            for m in generation.members
            if self.reaches(m.host)
            and all(age(known) < age(generation) for known in self.sim.hosts[m.host].generations())
        ]
        unreachable = {name: "" for name in self.sim.hosts if not self.reaches(name)}
        return Observed(self.control, tuple(nodes), True, unreachable, tuple(outdated), tuple(strays))

    def homes(self, generation: Generation) -> dict[int, str]:
        """Where nodes belong: one that is left out stays where it is planned."""
        return self.plan | Control(generation).placement

    def begin(self, homes: dict[int, str], without: frozenset[int], ledger: Ledger, cause: str) -> None:
        """Begin a generation, if enough nodes stand ready, and more than before where that is what it is for."""
        ready = {node: host for node, host in homes.items() if node not in without and self.can_start(node, host)}
        before = self.control.generation
        assert before is not None
        if len(ready) < self.sim.least or (cause == NOT_COUNTED and len(ready) <= len(before.members)):
            return
        generation = self.sim.generation(ready, before.number + 1)
        if not self.sim.bugs.at_once:
            generation = replace(generation, moves=moves_of(generation, self.observe(before), ()))
        if not self.sim.bugs.forgets_leases:
            generation = replace(generation, longest_lease=longest_lease(generation, self.observe(before)))
        generation = replace(generation, origin=self.standing.origin)
        self.control = Control(generation, self.control.ledger if self.sim.bugs.forgets else ledger)
        self.sim.restarts += 1
        self.sim.causes.setdefault(generation.number, set()).add(cause)
        self.detector.expect(generation)
        self.tidy()

    def can_start(self, node: int, name: str) -> bool:
        """Say whether a node runs on a host, or can be started there."""
        if not self.reaches(name):
            return False
        host = self.sim.hosts[name]
        if any(x.node == node for x in host.launchers) or self.sim.now >= host.refuses:
            return True
        self.unfit[name] = self.sim.now
        return False

    def end_as(self, result: JobResult, ledger: Ledger) -> None:
        """End the job, on all hosts that can be reached."""
        assert self.control.generation is not None
        generation = replace(self.control.generation, command="finish")
        self.control = Control(generation, replace(ledger, result=result))
        self.hand_over()

    def tidy(self) -> None:
        """Start what is missing, remove what belongs elsewhere, hand out the generation."""
        assert self.control.generation is not None
        homes = self.control.placement
        for name, host in self.sim.hosts.items():
            if not self.reaches(name):
                continue
            belongs = self.homes(self.control.generation)
            host.remove({x.node for x in host.launchers if belongs.get(x.node) != name})
            for node, home in homes.items():
                missing = home == name and not any(x.node == node for x in host.launchers)
                if host.done.get(node) == self.control.generation.number:
                    continue
                if missing and self.can_start(node, name):
                    host.launchers.append(self.sim.launcher(host, node))
        self.hand_over()

    def repair(self, observed: Observed) -> None:
        """Complete the generation, by the steps that the supervisor takes."""
        assert observed.control.generation is not None
        homes = self.homes(observed.control.generation)
        nodes = [SimpleNamespace(index=node, host=SimpleNamespace(name=name)) for node, name in sorted(homes.items())]
        plan: Any = SimpleNamespace(job="sim", nodes=nodes, services=(), min_nodes=self.sim.least, stop_grace=0.0)
        for step in reconcile(Wanted(plan, {}, None, begins=False, supervise=False), observed):
            host = self.sim.hosts[step.host]
            if step.kind == "hand-over":
                if not self.sim.bugs.once:
                    self.send(host)
            elif step.kind == "remove":
                host.remove({step.node})
            elif step.node is not None and self.can_start(step.node, host.name):
                host.launchers.append(self.sim.launcher(host, step.node))

    def hand_over(self) -> None:
        """Give ledger and generation to all hosts that can be reached."""
        for name, host in self.sim.hosts.items():
            if self.reaches(name):
                self.send(host)

    def send(self, host: Host) -> None:
        """Give ledger and generation to a host: now, late, or in vain."""
        if self.control.generation is not None and self.sim.chance.random() >= self.sim.loss:
            self.sim.orders.append((self.sim.later(host.name, 1), host, self.control))


def _idle(supervisor: Supervisor, generation: Generation) -> list[ObservedNode]:
    """Return the nodes that the generation lacks, of which there is a launcher where they are planned."""
    members, found = Control(generation).placement, []
    for node, name in supervisor.plan.items():
        launchers = supervisor.sim.hosts[name].launchers if supervisor.reaches(name) and node not in members else ()
        for one in launchers:
            if one.node == node:
                standby = StandbyState("ready" if supervisor.sim.now - one.made >= IMPORTS else "warming", None)
                seen = ObservedNode(node, "trainer", name, "pending", launcher=1, standby=standby)
                found.append(replace(seen, generation=one.number if one.begun else 0))
    return found


def _observed(member: Member, launcher: Launcher | None, generation: Generation, done: int | None) -> ObservedNode:
    node, host = member.node, member.host
    if launcher is None and done is not None:
        return ObservedNode(node, "trainer", host, "exited", generation=done, exit_code=0)
    if launcher is None:
        return ObservedNode(node, "trainer", host, "failed")
    failure: Failure | None = None
    state: State = "running" if launcher.trains else "pending"
    if launcher.stopped:
        state = "exited"
    elif launcher.fenced or launcher.failed:
        state, kind = ("fenced", "fenced") if launcher.fenced else ("failed", "launcher")
        failure = dead_launcher(generation=launcher.number, at=launcher.at, node=node, host=host, kind=kind)
    step, number = launcher.step, launcher.number
    return ObservedNode(node, "trainer", host, state, launcher=1, generation=number, progress=step, failure=failure)
