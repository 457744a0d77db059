"""What the batch script becomes: it deals the nodes of the job to the machines of the allocation, and ends it."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.container import why_ended
from jobctl.jobspec.allocation.generation import Generations
from jobctl.jobspec.allocation.image import JobImage
from jobctl.jobspec.allocation.interrupted import judge_interrupted, over_time, why_not_later
from jobctl.jobspec.allocation.messages import LINGER, MARGIN, TICK, TICK_KEYS, Datagrams, say
from jobctl.jobspec.allocation.nodelist import expand
from jobctl.jobspec.allocation.orders import UserOrders
from jobctl.jobspec.allocation.places import Places
from jobctl.jobspec.allocation.record import Record
from jobctl.jobspec.allocation.refusals import Refusals
from jobctl.jobspec.allocation.scheduler import Scheduler, SlurmSilent, wait_for_end
from jobctl.jobspec.allocation.size import JobSize
from jobctl.jobspec.launcher.system.files import read_json
from jobctl.jobspec.launcher.system.processes import boot_time

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set

    from jobctl.jobspec.allocation.places import RunnerState
    from jobctl.jobspec.launcher.system.files import Json
POLL = 0.1
REVIVE = 10.0  # seconds between two tries to start a node runner again
LEAVE_TIMEOUT = 4 * TICK  # seconds without a tick after which all runners have left that can hear


class Coordinator:
    """Gives each node of the job to a machine, and answers the runners there; that is their lease."""

    def __init__(self, work: str) -> None:
        self.work, environ = work, dict(os.environ)
        self.settings = read_json(os.path.join(work, "slurm.json")) or {}
        self.job_id = environ["SLURM_JOB_ID"]
        self.record = Record(work, environ)
        self.generations = Generations(work, self.job_id)
        self.scheduler = Scheduler(work, self.settings, self.job_id)
        self.image = JobImage(work, self.settings)
        self.datagrams = Datagrams(os.urandom(16).hex(), TICK_KEYS)
        self.places = Places(expand(environ["SLURM_JOB_NODELIST"]), self.settings["slots"])
        self.home = environ.get("SLURMD_NODENAME") or self.places.hosts[0]
        self.size = JobSize(self.places, self.settings, self.generations.start.get("nodes"))
        self.refusals = Refusals(self.size, self.record, self.generations.tries())
        self.orders = UserOrders(self)
        self.seq = 0
        self.peer_port = self.generations.port(0, 30_001, 32_700)
        self.taken: Set[str] = set()  # the machines that Slurm has taken out of the allocation
        self.steps: Dict[str, Any] = {}  # of Slurm, by the machine that they are for; the first one is for all
        self.started = self.revived = boot_time()
        self.signals: List[int] = []
        self.stopping: Optional[Json] = None  # why processes are told to end
        self.resizing: Optional[Dict[int, RunnerState]] = None  # where nodes shall be once their processes have ended
        self.ending: Optional[float] = None  # since when launchers have had something to end for
        self.told = False  # whether Slurm has told this script to end, and not only the step of the runners

    def run(self) -> int:
        """Run the job until it ends, or goes on in another allocation; return the exit code of the batch script."""
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, frame: self.signals.append(received))
        self.record.note_job(self.job_id)
        self.record.event("allocation", "job %s of Slurm runs on %s" % (self.job_id, ", ".join(self.places.hosts)))
        self.orders.begin()
        self.steps["all"] = self.start_runners(self.places.hosts)
        while True:
            now = boot_time()
            for message, sender in self.datagrams.receive():
                self.hear(message, sender, now)
            while self.signals:
                self.on_signal(self.signals.pop(0))
            self.place(now)
            self.revive(now)
            code = self.judge(now)
            self.tell_state(now)
            if self.record.superseded:
                say("this machine was given up: the job goes on elsewhere")
                return 143
            if code is not None:
                self.say_farewell()
                return code
            select.select([self.datagrams.socket], [], [], POLL)

    def on_signal(self, number: int) -> None:
        """Take note of the time limit, of an order of jobctl's, or of Slurm's wish to end the job."""
        if number == signal.SIGUSR1:
            self.stop("time", "the time limit is near")
        elif number == signal.SIGUSR2:
            self.orders.read()
        else:
            self.told = True
            self.stop("slurm", "Slurm ends the job")

    def stop(self, kind: str, reason: str) -> None:
        """Have all processes end, with their grace."""
        if self.stopping is None:
            self.record.event("stopping", "processes are told to end: %s" % reason)
            self.image.end()
            self.stopping = {"kind": kind, "reason": reason, "since": boot_time()}
        elif kind == "user" and self.stopping["kind"] != "failed":  # then it goes on nowhere
            self.stopping.update(kind=kind, reason=reason)

    # The runners.

    def hear(self, message: Json, sender: Any, now: float) -> None:
        """Take note of a runner's tick, and answer it."""
        runner = self.places.runners.get((message["host"], message["slot"]))
        if runner is None or now < runner.deaf:
            return
        if runner.who not in (None, message["who"]) and runner.is_heard(now):
            self.datagrams.send({"who": message["who"], "tick": message["tick"], "seq": 0, "leave": True}, sender)
            return
        before = runner.address
        self.revived = now if runner.heard is None else self.revived
        runner.who, runner.sender, runner.heard, runner.said = message["who"], sender, now, message
        if runner.address != before:
            self.places.version += 1
        self.answer(runner)

    def answer(self, runner: RunnerState, leave: bool = False) -> None:
        """Answer the last tick of a runner: which node it has, and where the others are."""
        places, node = self.places, self.places.node_of(runner)
        self.seq += 1
        answer: Json = {
            "who": runner.who,
            "tick": runner.said["tick"],
            "seq": self.seq,
            "node": node,
            "turn": places.turns[node] if node is not None else 0,
            "stop": self.stopping is not None or self.resizing is not None,
            "grace": self.settings["stop_grace"],
            "leave": leave,
            "peer_port": self.peer_port,
            "address": runner.address,
            "version": places.version,
            "image": self.image.file,
            "home": self.home,
        }
        if runner.said["names"] != places.version:
            answer["names"] = {name: [at, self.peer_port + slot] for name, (at, slot) in places.names().items()}
        self.datagrams.send(answer, runner.sender)

    def start_runners(self, hosts: List[str]) -> Any:
        """Start the runners of machines, in a step of their own."""
        return self.scheduler.start_runners(hosts, self.places.width, self.datagrams.port, self.datagrams.token)

    def place(self, now: float) -> None:
        """Give each node a machine: all at the beginning, then those of machines that are lost."""
        places = self.places
        if self.stopping is not None:
            return
        if not places.at:
            count = self.size.first(now, now - self.started) if self.image.is_there(now) else 0
            if count:
                places.deal(places.ready(now)[:count])
                self.begin()
                for runner in places.at.values():
                    self.answer(runner)  # once more, as they have just learnt that they have none
            return
        if self.resizing is None and self.refusals.look(now):
            self.stop("failed", self.refusals.problem or "")
            return
        lost = places.lost(now, self.settings["host_timeout"] + MARGIN) if self.resizing is None else []
        for node in lost:  # while processes end, nobody moves: the machines have been dealt already
            host, free = places.at[node].host, places.free(now, places.slots[node])
            if free:
                places.put(node, free[0])
                self.answer(free[0])
                words = "%s does not answer: node %d moves to %s" % (host, node, free[0].host)
                self.record.event("host-lost", words, node=node, host=host)
        self.resize(now)
        if self.resizing is None:
            self.miss(now)

    def miss(self, now: float) -> None:
        """Record once that nodes wait for machines that do not answer: a person may have to bring these back."""
        nodes = self.places.missed(now, self.settings["host_timeout"] + MARGIN)
        if nodes:
            hosts = ", ".join(sorted({self.places.at[node].host for node in nodes}))
            words = "%s does not answer, and no other machine is free: the job waits for it" % hosts
            self.record.event("waiting", words, nodes=nodes, lasting=True)

    def resize(self, now: float) -> None:
        """Have an elastic job go on with as many nodes as there are machines for, once its processes have ended."""
        places = self.places
        if self.resizing is None:
            self.resizing = self.size.change(now)
            if self.resizing is None:
                return
            event, words = places.why_changed(self.resizing, now)
            self.generations.cause = words = "%s: the job goes on with %d nodes" % (words, len(self.resizing))
            self.record.event(event, words, nodes=sorted(self.resizing))
        if not places.running(now):
            places.resize(self.resizing)
            self.resizing = self.ending = None
            self.begin()

    def begin(self) -> None:
        """Write the generation that the launchers of the nodes begin with, wherever these are now; or the job fails."""
        try:
            missing = self.generations.make_directory(self.settings["checkpoint"])
            number = self.generations.begin(self.places.at)["number"]
        except OSError as error:
            self.stop("failed", _cannot_make(error, self.home))
            return
        if missing is not None:
            self.record.event("checkpoint", _cannot_make(missing, self.home))
        names = ", ".join(runner.host for runner in self.places.at.values())
        self.record.event("placed", "generation %d on %s" % (number, names), generation=number)

    def revive(self, now: float) -> None:
        """Start node runners again that are gone: somebody has killed them, or their machine has come back."""
        places, timeout = self.places, self.settings["host_timeout"] + MARGIN
        silent = [host for host in places.silent(now) if host not in self.taken]
        slow = not places.at and _go_on(self.steps, silent)
        if self.stopping is not None or now - self.revived < (timeout if slow else REVIVE):
            return
        lost = {places.at[node].host for node in places.lost(now, timeout)} if places.at else set(places.silent(now))
        listed = self.scheduler.machines_soon(now) if silent and self.resizing is None else []
        if listed is None:
            return
        self.revived = now
        self.taken.update(set(silent) - set(listed) if listed else ())  # Slurm never gives back what it has called down
        taken = sorted(lost & self.taken) if self.resizing is None else []  # a job that gets smaller does without them
        if taken and (places.at or len(places.hosts) - len(self.taken) < self.size.least):
            self.stop("machines", "Slurm has taken %s out of the allocation" % ", ".join(taken))
            return
        for host in (host for host in silent if host not in self.taken):
            if host not in self.steps or self.steps[host].poll() is not None:
                self.steps[host] = self.start_runners([host])

    # The end.

    def judge(self, now: float) -> Optional[int]:
        """Say with which code the batch script ends, None while the job goes on."""
        if self.stopping is None and self.places.are_leaving(now):
            self.stop("slurm", "Slurm ends the processes of the job")
        over = over_time(self, now) if self.stopping is None else None
        if over is not None:
            self.stop("failed", over)
        if self.stopping is not None:
            return self.judge_stop(self.stopping, now)
        if self.image.problem is not None:
            self.record.result("failed", self.image.problem, None)
            return 1
        ended = self.places.codes()
        failed = {node: code for node, code in ended.items() if code}
        if self.places.at and len(ended) == len(self.places.at) and not failed:
            self.record.result("succeeded", "all ranks have ended well", 0)
            return 0
        if failed and self.resizing is None:
            self.ending = self.ending or now
            if not self.places.running(now) or now - self.ending > LINGER + float(self.settings["stop_grace"]):
                node = min(failed)
                why = why_ended(self.work, self.settings, self.places.homes(), node, failed[node])
                self.record.result("failed", why, failed[node])
                return 1
        return None

    def judge_stop(self, why: Json, now: float) -> Optional[int]:
        """Wait until all processes have ended that were told to; then end, or have the job go on later."""
        ended = self.places.codes()
        late = now - why["since"] > float(self.settings["stop_grace"]) + LINGER
        if self.places.running(now) and not late:
            return None
        if ended and len(ended) == len(self.places.at) and not any(ended.values()):
            self.record.result("succeeded", "all ranks have ended well", 0)
            return 0
        if why["kind"] in ("user", "failed"):
            phase, code = ("stopped", 0) if why["kind"] == "user" else ("failed", 1)
            self.record.result(phase, why["reason"], None)
            return code
        return judge_interrupted(self, why, now) if why["kind"] == "slurm" else self.go_on_later(why)

    def go_on_later(self, why: Json) -> int:
        """Have the job go on in another allocation, if that is of any use."""
        futile = why_not_later(self, why)
        if futile is not None:
            self.record.result("failed", "%s: %s" % (why["reason"], futile), None)
            return 1
        # While Slurm is silent, nobody shall take this script for one that does not answer.
        self.record.write(state="interrupted", reason=why["reason"])
        try:
            following, words = self.scheduler.go_on_later(lambda: signal.SIGTERM in self.signals)
        except SlurmSilent as error:
            if signal.SIGTERM in self.signals:
                return 143  # it ends the job: it may have requeued it
            following, words = None, str(error)
        if following is None:
            reason = "%s, and the job cannot go on in another allocation: %s" % (why["reason"], words)
            self.record.result("failed", reason, None)
            return 1
        self.record.write(state="handed-over", reason="%s: %s" % (why["reason"], words), next=following)
        self.record.event("handed-over", "%s: %s" % (why["reason"], words), job_id=following)
        self.record.note_job(following)
        if following == self.job_id:  # Slurm ends this script: a code of its own would be the job's
            self.say_farewell()
            wait_for_end(self.signals)
        return 0

    def say_farewell(self) -> None:
        """Have all runners leave, each with the answer to its next tick; one that does not hear it ends with its step."""
        deadline, last = time.monotonic() + LINGER, boot_time()
        while any(step.poll() is None for step in self.steps.values()) and time.monotonic() < deadline:
            now = boot_time()
            if now - last > LEAVE_TIMEOUT:
                break  # the step waits for a machine that is lost
            for message, sender in self.datagrams.receive():
                runner = self.places.runners.get((message["host"], message["slot"]))
                last = now
                if runner is not None and runner.who == message["who"]:
                    runner.sender, runner.heard, runner.said = sender, now, message
                    self.answer(runner, leave=True)
            time.sleep(POLL)
        for step in self.steps.values():
            if step.poll() is None:
                step.terminate()

    # Those who look at the job.

    def tell_state(self, now: float) -> None:
        """Write down where the nodes are, and how their machines do."""
        fields, placed = self.record.fields, bool(self.places.at)
        state = "running" if placed and fields["state"] == "starting" else fields["state"]
        reason = fields["reason"]
        if state in ("starting", "running") and not self.stopping:
            waiting = [] if placed else self.places.silent(now)
            reason = _awaited(waiting, self.steps) if waiting else self.image.reason
        self.record.write(state=state, reason=reason, nodes=self.places.told(now), spares=self.places.spares(now))


def _awaited(hosts: List[str], steps: Dict[str, Any]) -> str:
    """Return which machines have not answered, and whether `srun` has failed there: a person may have to do something."""
    words = "waits for an answer of %s" % ", ".join(hosts)
    failed = [code for code in [step.poll() for step in steps.values()] if code]
    return "%s; srun has ended with exit code %d: slurm.out says why" % (words, failed[-1]) if failed else words


def _go_on(steps: Dict[str, Any], hosts: List[str]) -> bool:
    """Say whether runners may still come to all of `hosts`: none does once its srun has ended.

    Steps of many machines begin slowly: before nodes are placed, all that come get the time for it.
    """
    return all(steps.get(host, steps["all"]).poll() is None for host in hosts)


def _cannot_make(error: OSError, host: str) -> str:
    return "cannot make %s on %s: %s" % (error.filename, host, error.strerror)
