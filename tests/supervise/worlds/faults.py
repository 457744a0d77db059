"""What happens to the hosts, links and supervisors of a simulated world, and to the members of its etcd."""

from __future__ import annotations

import random

from .alone import AloneSim
from .etcd import EtcdSim
from .world import Sim

KINDS = (
    "isolate",
    "isolate",
    "split",
    "cut",
    "cut",
    "mend",
    "off",
    "on",
    "pause",
    "wake",
    "kill",
    "start",
    "nap",
    "coup",
)
KINDS += ("fail", "fail", "slow", "refuse", "finish", "finish", "die", "full", "lose", "late")
MORE = ("member", "member", "members", "dark", "start members", "cut members", "alone")


def fault(sim: Sim, chance: random.Random) -> None:
    host = chance.choice(list(sim.hosts.values()))
    supervisor = chance.choice(sim.supervisors) if sim.supervisors else None
    names = [*sim.hosts, "s0", "s1"]
    kind = chance.choice(KINDS)
    if kind == "isolate":
        sim.partition({name: name == host.name for name in names})
    elif kind == "coup":  # another supervisor, on the other side of a cut
        sim.partition({name: name in (host.name, "s0") for name in names})
        sim.run(16.0)
        sim.supervise("s1")
    elif kind == "fail":  # and the machine stands still just when it is given the next generation
        sim.fail(host)
        sim.run(chance.choice((0.25, 0.5, 0.75)))
        other = chance.choice(list(sim.hosts.values()))
        other.paused = True
        sim.run(12.0)
        other.paused = False
    elif kind == "slow":  # answers are long under way, then ticks are
        sim.slow = {host.name: (0.0, 4.5)}
        sim.run(5.0)
        sim.slow = {host.name: (60.0, 4.5)}
        sim.run(12.0)
        sim.slow = {}
    elif kind == "refuse":  # nothing can be started there, and a node is to be
        host.refuses = sim.now + 40.0
        other = chance.choice(list(sim.hosts.values()))
        other.power_off()
    elif kind in ("full", "lose", "late"):  # and something fails just then, so that a generation is handed out
        host.full, sim.loss, sim.late = kind == "full", 0.5 * (kind == "lose"), 0.5 if kind == "late" else sim.late
        sim.fail(chance.choice(list(sim.hosts.values())))
        sim.run(chance.choice((0.5, 2.0, 12.0)))
        host.full, sim.loss, sim.late = chance.random() < 0.3, 0.0, 0.03
    elif kind == "finish":
        sim.finish(host)
    elif kind == "die":
        sim.kill(host)
    elif kind == "split":
        sim.partition({name: chance.random() < 0.5 for name in names})
    elif kind == "cut":
        sim.cuts |= {frozenset(chance.sample(names, 2)) for _ in range(chance.randint(1, 4))}
    elif kind == "mend":
        sim.cuts = set()
    elif kind == "off":
        host.power_off()
    elif kind == "on":
        host.on = True
    elif kind == "pause":
        host.paused = host.on
    elif kind == "wake":
        host.paused = False
    elif kind == "kill":
        sim.kill_supervisor()
    elif kind == "start":
        sim.supervise(chance.choice(("s0", "s1")))
    elif supervisor is not None:
        supervisor.paused = not supervisor.paused


def mishap(sim: AloneSim, chance: random.Random) -> None:
    """Do something to a job that nobody watches: no process ends well, as nobody would say that the job has."""
    host, names = chance.choice(list(sim.hosts.values())), list(sim.hosts)
    match chance.choice(
        ("isolate", "split", "cut", "mend", "off", "on", "pause", "wake", "fail", "kill", "slow", "outage")
    ):
        case "isolate":
            sim.partition({name: name == host.name for name in names})
        case "split":
            sim.partition({name: chance.random() < 0.5 for name in names})
        case "cut":
            sim.cuts |= {frozenset(chance.sample(names, 2))} if len(names) > 1 else set()
        case "mend":
            sim.cuts = set()
        case "off":
            host.power_off()
        case "on":
            host.on = True
        case "pause":
            host.paused = host.on
        case "wake":
            host.paused = False
        case "fail":
            sim.fail(host)
        case "kill":
            sim.kill(host)
        case "slow":  # answers come late, then ticks do
            sim.slow = {host.name: (0.0, 4.5)}
            sim.run(5.0)
            sim.slow = {host.name: (60.0, 4.5)}
            sim.run(12.0)
            sim.slow = {}
        case "outage":  # all lose power
            for one in sim.hosts.values():
                one.power_off()
            sim.run(2.0)
            for one in sim.hosts.values():
                one.on = True


def etcd_fault(sim: EtcdSim, chance: random.Random) -> None:
    names, store = [*sim.hosts, "s0", "s1", *sim.store.names], sim.store
    match chance.choice(MORE):
        case "member":
            store.dead ^= {chance.choice(store.names)}
        case "members":
            store.dead = set(chance.sample(store.names, 2))
        case "dark":
            store.dark = {chance.choice(store.names)} if chance.random() < 0.7 else set()
        case "start members":
            store.dead, store.dark = set(), set()
        case "cut members":
            sim.partition({name: chance.random() < 0.5 for name in names})
        case _:
            sim.kill_supervisor()
            sim.fail(chance.choice(list(sim.hosts.values())))
