"""What the batch script becomes: it deals the nodes of the job to the machines of the allocation, and ends it."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.generation import Generations
from jobctl.jobspec.allocation.messages import MARGIN, SILENT, TICK, Datagrams
from jobctl.jobspec.allocation.nodelist import expand
from jobctl.jobspec.allocation.record import Record
from jobctl.jobspec.allocation.scheduler import Scheduler
from jobctl.jobspec.launcher.files import read_json
from jobctl.jobspec.launcher.processes import boot_time

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from jobctl.jobspec.launcher.files import Json
POLL = 0.1
GATHER = 20.0  # seconds after which the job begins without machines that it can do without
REVIVE = 30.0  # seconds between two tries to start a node runner again
LINGER = 10.0  # seconds that launchers get to hear of the end from each other
BRIEF = 5.0  # seconds in which an allocation gets nowhere
IN_VAIN = 3  # such allocations in a row, after which the job has failed
LEFT = 4 * TICK  # seconds without a tick after which all runners have left that can hear
HAND_OVER = 120.0  # seconds within which Slurm ends a job that it has requeued


class RunnerState:
    """What is known of the machine, and of the runner on it."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.who: Optional[str] = None
        self.sender: Any = None
        self.heard: Optional[float] = None
        self.said: Json = {}

    def silent_for(self, now: float) -> float:
        """Return for how many seconds it was not heard; one that never was counts as silent for ever."""
        return float("inf") if self.heard is None else now - self.heard


class Coordinator:
    """Gives each node of the job to a machine, and answers the runners there; that is their lease."""

    def __init__(self, work: str) -> None:
        self.work, environ = work, dict(os.environ)
        self.settings = read_json(os.path.join(work, "slurm.json")) or {}
        self.job_id = environ["SLURM_JOB_ID"]
        self.record = Record(work, environ)
        self.generations = Generations(work, self.job_id)
        self.scheduler = Scheduler(work, self.settings, self.job_id)
        self.token = os.urandom(16).hex()
        self.datagrams = Datagrams(self.token)
        self.runners: Dict[str, RunnerState] = {
            host: RunnerState(host) for host in expand(environ["SLURM_JOB_NODELIST"])
        }
        self.hosts: Dict[int, str] = {}  # where each node is
        self.turns: Dict[int, int] = {}  # how often each node was given to a machine, or begun again
        self.version = self.seq = 0
        self.circle = self.generations.port(0, 30_001, 32_700)
        self.steps: Dict[str, Any] = {}  # of Slurm, by the machine that they are for; the first one is for all
        self.started = self.revived = boot_time()
        self.signals: List[int] = []
        self.ordered: Optional[str] = None  # the id of the last order that was followed
        self.stopping: Optional[Json] = None  # why processes are told to end
        self.ending: Optional[float] = None  # since when launchers have had something to end for

    def run(self) -> int:
        """Run the job until it ends, or goes on in another allocation; return the exit code of the batch script."""
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, frame: self.signals.append(received))
        self.note_job(self.job_id)
        self.record.event("allocation", "job %s of Slurm runs on %s" % (self.job_id, ", ".join(self.runners)))
        self.ordered = (read_json(os.path.join(self.work, "run", "order.json")) or {}).get("id")
        self.steps["all"] = self.scheduler.start_runners(list(self.runners), self.datagrams.port, self.token)
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
            if code is not None:
                self.say_farewell()
                return code
            select.select([self.datagrams.socket], [], [], POLL)

    def note_job(self, job_id: str) -> None:
        """Note which job of Slurm's this is now."""
        with open(os.path.join(self.work, "run", "job_id"), "w", encoding="utf-8") as file:
            file.write(job_id + "\n")

    def on_signal(self, number: int) -> None:
        """Take note of the time limit, of an order of jobctl's, or of Slurm's wish to end the job."""
        if number == signal.SIGUSR1:
            self.stop("time", "the time limit is near")
        elif number == signal.SIGUSR2:
            self.read_order()
        else:
            self.stop("slurm", "Slurm ends the job")

    def read_order(self) -> None:
        """Follow what `jobctl stop` or `jobctl restart` has left."""
        order = read_json(os.path.join(self.work, "run", "order.json"))
        if order is None or order["id"] == self.ordered:
            return
        self.ordered = order["id"]
        if order["command"] == "stop":
            self.stop("user", "stopped by the user")
        elif order["command"] == "restart" and self.hosts and self.stopping is None:
            self.record.event("restart", "all nodes begin again: `jobctl restart`")
            self.generations.begin(fresh_budget=True)
            self.turns = {node: turn + 1 for node, turn in self.turns.items()}
            self.ending = None

    def stop(self, kind: str, reason: str) -> None:
        """Have all processes end, with their grace."""
        if self.stopping is None:
            self.record.event("stopping", "processes are told to end: %s" % reason)
            self.stopping = {"kind": kind, "reason": reason, "since": boot_time()}

    # The runners.

    def hear(self, message: Json, sender: Any, now: float) -> None:
        """Take note of a runner's tick, and answer it."""
        runner = self.runners.get(message["host"])
        if runner is None:
            return
        if runner.who not in (None, message["who"]) and runner.silent_for(now) <= SILENT:
            self.datagrams.send({"who": message["who"], "tick": message["tick"], "seq": 0, "leave": True}, sender)
            return
        moved = runner.sender is None or runner.sender[0] != sender[0]
        runner.who, runner.sender, runner.heard, runner.said = message["who"], sender, now, message
        if moved:
            self.version += 1
        self.answer(runner)

    def answer(self, runner: RunnerState, leave: bool = False) -> None:
        """Answer the last tick of a runner: which node it has, and where the others are."""
        node = next((node for node, host in self.hosts.items() if host == runner.host), None)
        self.seq += 1
        answer: Json = {
            "who": runner.who,
            "tick": runner.said["tick"],
            "seq": self.seq,
            "node": node,
            "turn": self.turns.get(node, 0) if node is not None else 0,
            "stop": self.stopping is not None,
            "leave": leave,
            "circle": self.circle,
            "address": runner.sender[0],
            "version": self.version,
        }
        if runner.said["names"] != self.version:
            answer["names"] = {"node-%d" % number: self.runners[host].sender[0] for number, host in self.hosts.items()}
        self.datagrams.send(answer, runner.sender)

    def free(self, now: float) -> List[RunnerState]:
        """Return the machines that answer and have no node, in the order of the allocation."""
        taken = set(self.hosts.values())
        able = [runner for runner in self.runners.values() if not runner.said.get("leaving")]
        return [r for r in able if r.host not in taken and r.silent_for(now) <= SILENT]

    def place(self, now: float) -> None:
        """Give each node a machine: all at the beginning, then those of machines that are lost."""
        count = self.settings["nodes"]
        free = self.free(now)
        if self.stopping is not None:
            return
        if not self.hosts:
            late = now - self.started > GATHER
            if len(free) == len(self.runners) or (late and len(free) >= count):
                self.begin(free[:count])
            return
        for node, host in list(self.hosts.items()):
            if self.runners[host].silent_for(now) <= self.settings["host_timeout"] + MARGIN or not free:
                continue
            runner = free.pop(0)
            self.hosts[node] = runner.host
            self.turns[node] += 1
            self.version += 1
            self.record.event(
                "host-lost", "%s does not answer: node %d moves to %s" % (host, node, runner.host), node=node, host=host
            )

    def begin(self, machines: List[RunnerState]) -> None:
        """Deal the nodes, and write the generation that their launchers begin with."""
        directory = self.settings["checkpoint"]
        if directory:
            os.makedirs(directory, exist_ok=True)
        order = self.generations.begin()
        self.hosts = {node: runner.host for node, runner in enumerate(machines)}
        self.turns = dict.fromkeys(self.hosts, 1)
        self.version += 1
        number, names = order["number"], ", ".join(self.hosts.values())
        self.record.event("placed", "generation %d on %s" % (number, names), generation=number)

    def revive(self, now: float) -> None:
        """Start node runners again that are gone: somebody has killed them, or their machine has come back."""
        if not self.hosts or self.stopping is not None or now - self.revived < REVIVE:
            return
        self.revived = now
        for host in [runner.host for runner in self.runners.values() if runner.silent_for(now) > SILENT]:
            if host not in self.steps or self.steps[host].poll() is not None:
                self.steps[host] = self.scheduler.start_runners([host], self.datagrams.port, self.token)

    # The end.

    def judge(self, now: float) -> Optional[int]:
        """Say with which code the batch script ends, None while the job goes on."""
        if self.stopping is not None:
            return self.judge_stop(self.stopping, now)
        ended = self.codes()
        failed = {node: code for node, code in ended.items() if code}
        if self.hosts and len(ended) == len(self.hosts) and not failed:
            self.record.result("succeeded", "all ranks have ended well", 0)
            return 0
        if failed:
            self.ending = self.ending or now
            others = [host for node, host in self.hosts.items() if node not in ended]
            heard = [host for host in others if self.runners[host].silent_for(now) <= SILENT]
            if not heard or now - self.ending > LINGER + float(self.settings["stop_grace"]):
                node = min(failed)
                self.record.result("failed", self.words(node) or "node %d failed" % node, failed[node])
                return 1
        return None

    def codes(self) -> Dict[int, int]:
        """Return how the launchers of nodes have ended, of those that have."""
        found = {}
        for node, host in self.hosts.items():
            said = self.runners[host].said
            if (said.get("node"), said.get("turn")) == (node, self.turns[node]) and said.get("ended") is not None:
                found[node] = int(said["ended"])
        return found

    def words(self, node: int) -> Optional[str]:
        """Return why a node has failed, as its launcher says."""
        reports = [read_json(os.path.join(self.work, "node-%d" % n, "report.json")) or {} for n in (node, *self.hosts)]
        told = [(report.get("order") or {}).get("why") for report in reports]
        failed = [report.get("reason") for report in reports if report.get("failure")]
        return next(filter(None, [*told, *failed]), None)

    def judge_stop(self, why: Json, now: float) -> Optional[int]:
        """Wait until all processes have ended that were told to; then end, or have the job go on later."""
        ended = self.codes()
        left = [host for node, host in self.hosts.items() if node not in ended]
        heard = [host for host in left if self.runners[host].silent_for(now) <= SILENT]
        late = now - why["since"] > float(self.settings["stop_grace"]) + LINGER
        if heard and not late:
            return None
        if ended and len(ended) == len(self.hosts) and not any(ended.values()):
            self.record.result("succeeded", "all ranks have ended well", 0)
            return 0
        if why["kind"] == "user":
            self.record.result("stopped", why["reason"], None)
            return 0
        if why["kind"] == "slurm":
            # Whether it goes on is for Slurm to say: it may have requeued the job.
            self.record.write(state="interrupted", reason=why["reason"])
            return 143
        return self.go_on_later(why)

    def go_on_later(self, why: Json) -> int:
        """Have the job go on in another allocation. Not for ever: one that is warned as soon as it begins gets nowhere."""
        brief = self.generations.start.get("brief", 0) + 1 if why["since"] - self.started < BRIEF else 0
        self.generations.note(brief=brief)
        if brief >= IN_VAIN:
            words = "%d allocations in a row were over within %g s" % (brief, BRIEF)
            self.record.result("failed", "%s: %s; is `slurm.time` long enough?" % (why["reason"], words), None)
            return 1
        following, words = self.scheduler.go_on_later()
        if following is None:
            reason = "%s, and the job cannot go on in another allocation: %s" % (why["reason"], words)
            self.record.result("failed", reason, None)
            return 1
        self.record.write(state="handed-over", reason="%s: %s" % (why["reason"], words), next=following)
        self.record.event("handed-over", "%s: %s" % (why["reason"], words), job_id=following)
        self.note_job(following)
        if following == self.job_id:  # Slurm ends this script: a code of its own would be the job's
            self.say_farewell()
            self.wait_for_end()
        return 0

    def wait_for_end(self) -> None:
        """Wait until Slurm tells this script to end, as it does once it has requeued the job."""
        self.signals.clear()
        deadline = time.monotonic() + HAND_OVER
        while not self.signals and time.monotonic() < deadline:
            time.sleep(POLL)

    def say_farewell(self) -> None:
        """Have all runners leave, each with the answer to its next tick; one that does not hear it ends with its step."""
        deadline, last = time.monotonic() + LINGER, boot_time()
        while any(step.poll() is None for step in self.steps.values()) and time.monotonic() < deadline:
            now = boot_time()
            if now - last > LEFT:
                break  # the step waits for a machine that is lost
            for message, sender in self.datagrams.receive():
                runner = self.runners.get(message["host"])
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
        ended = self.codes()
        nodes = {
            str(node): {
                "host": host,
                "address": self.runners[host].sender[0] if self.runners[host].sender else None,
                "heard": self.runners[host].silent_for(now) <= SILENT,
                "runs": node not in ended and self.runners[host].said.get("node") == node,
                "ended": ended.get(node),
                "turn": self.turns[node],
            }
            for node, host in self.hosts.items()
        }
        taken = set(self.hosts.values())
        rest = [runner for runner in self.runners.values() if runner.host not in taken] if self.hosts else []
        spares = [{"host": r.host, "state": "ready" if r.silent_for(now) <= SILENT else "unreachable"} for r in rest]
        state = self.record.fields["state"]
        if self.hosts and state == "starting":
            state = "running"
        waiting = [r.host for r in self.runners.values() if r.silent_for(now) > SILENT]
        reason = self.record.fields["reason"]
        if state in ("starting", "running") and not self.stopping:
            reason = "waits for an answer of %s" % ", ".join(waiting) if waiting and not self.hosts else None
        self.record.write(state=state, reason=reason, nodes=nodes, spares=spares)
