"""Where the nodes of a job are: which runner has which node. A machine has a runner for each role of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import RUNNER_SILENCE_TIMEOUT

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.system.files import Json


class RunnerState:
    """What is known of a runner. Its `slot` is the number of the role whose nodes it runs: trainers have 0."""

    def __init__(self, host: str, slot: int) -> None:
        self.host, self.slot = host, slot
        self.who: Optional[str] = None
        self.sender: Any = None
        self.heard: Optional[float] = None
        self.said: Json = {}
        self.deaf = 0.0  # until when it is not heard, as a drill plays that its machine is lost
        self.refused: Optional[float] = None  # when it could not start a node, since it last did
        self.refusal: Optional[str] = None  # why
        self.excluded = False  # whether that is because a rule had a node leave it

    def silent_for(self, now: float) -> float:
        """Return for how many seconds it was not heard; one that never was counts as silent for ever."""
        return float("inf") if self.heard is None else now - self.heard

    def is_heard(self, now: float) -> bool:
        """Say whether it was heard a moment ago."""
        return self.silent_for(now) <= RUNNER_SILENCE_TIMEOUT

    @property
    def address(self) -> Optional[str]:
        """Where its datagrams come from, None if none has come."""
        return str(self.sender[0]) if self.sender else None


class Places:
    """Which runner has which node. `slots` is the slot of each node of the job."""

    def __init__(self, hosts: Sequence[str], slots: Sequence[int]) -> None:
        self.hosts, self.slots, self.width = list(hosts), slots, 1 + max(slots)
        self.runners: Dict[Tuple[str, int], RunnerState] = {
            (host, slot): RunnerState(host, slot) for host in hosts for slot in range(self.width)
        }
        self.at: Dict[int, RunnerState] = {}
        self.turns: Dict[int, int] = {}  # how often each node was given to a runner, or begun again
        self.version = 0  # of the addresses
        self.awaited: List[int] = []  # the nodes of which `missed` has told

    def node_of(self, runner: RunnerState) -> Optional[int]:
        """Return the node that a runner has, None if it has none."""
        return next((node for node, one in self.at.items() if one is runner), None)

    def free(self, now: float, slot: int, *, refusing: bool = False) -> List[RunnerState]:
        """Return the runners for a slot that answer and have no node, in the order of the allocation.

        `refusing`: also those that could not start the node that they had.
        """
        able = [r for r in self.runners.values() if r.slot == slot and r.is_heard(now) and not r.said.get("leaving")]
        return [r for r in able if self.node_of(r) is None and (refusing or r.refused is None)]

    def ready(self, now: float) -> List[str]:
        """Return the machines whose runners all answer, and have no node."""
        free = [runner.host for slot in range(self.width) for runner in self.free(now, slot)]
        return [host for host in self.hosts if free.count(host) == self.width]

    def silent(self, now: float) -> List[str]:
        """Return the machines with a runner that does not answer."""
        quiet = {runner.host for runner in self.runners.values() if not runner.is_heard(now)}
        return [host for host in self.hosts if host in quiet]

    def deal(self, hosts: Sequence[str]) -> None:
        """Give each node a machine: the first node of each role the first machine, and so on, as far as there are any."""
        turn = [0] * self.width
        for node, slot in enumerate(self.slots):
            if turn[slot] < len(hosts):
                self.put(node, self.runners[hosts[turn[slot]], slot])
            turn[slot] += 1

    def put(self, node: int, runner: RunnerState) -> None:
        """Give a node to a runner."""
        self.at[node] = runner
        self.turns[node] = self.turns.get(node, 0) + 1
        self.version += 1

    def resize(self, at: Dict[int, RunnerState]) -> None:
        """Have other nodes from now on, which all begin again."""
        self.at = {}
        for node in sorted(at):
            self.put(node, at[node])

    def why_changed(self, at: Dict[int, RunnerState], now: float) -> Tuple[str, str]:
        """Return why a job has other nodes from now on: the event, and in words."""
        gone = [runner for node, runner in self.at.items() if node not in at]
        refusing = [runner.host for runner in gone if runner.refused is not None]
        silent = [runner.host for runner in gone if runner.refused is None and not runner.is_heard(now)]
        if not refusing and not silent:
            return "resized", "as `jobctl scale` says" if gone else "there are machines for more nodes"
        excluded = [runner.host for runner in gone if runner.excluded]
        words = [("a rule excludes %s" if h in excluded else "%s cannot start its node") % h for h in refusing]
        words += ["%s does not answer" % ", ".join(silent)] if silent else []
        return "host-lost" if silent else "host-failed", "; ".join(words)

    def missing(self) -> List[int]:
        """Return the nodes of the job that are nowhere: an elastic job may do without."""
        return [node for node in range(len(self.slots)) if node not in self.at]

    def lost(self, now: float, timeout: float) -> List[int]:
        """Return the nodes whose runner was silent for longer than `timeout`."""
        return [node for node, runner in self.at.items() if runner.silent_for(now) > timeout]

    def missed(self, now: float, timeout: float) -> List[int]:
        """Return the nodes that are lost, once for each that has been lost since; nothing while there is no further one."""
        before, self.awaited = self.awaited, self.lost(now, timeout)
        return self.awaited if set(self.awaited) - set(before) else []

    def said(self, node: int) -> Json:
        """Return what a node's runner said last of it, nothing if that was about another turn."""
        said = self.at[node].said
        return said if (said.get("node"), said.get("turn")) == (node, self.turns[node]) else {}

    def codes(self) -> Dict[int, int]:
        """Return how the launchers of nodes have ended, of those that have begun and ended.

        One that was told to end with its runner has not failed: its machine is switched off.
        """
        told = {node: self.said(node) for node in self.at}
        told = {node: said for node, said in told.items() if not (said.get("ended") and said.get("leaving"))}
        ended = {node: said for node, said in told.items() if said.get("ended") is not None}
        return {node: int(said["ended"]) for node, said in ended.items() if said.get("refused") is None}

    def refused(self, now: float) -> Dict[int, str]:
        """Return the nodes whose machines answer and could not start their launchers, and what these said."""
        told = {node: self.said(node).get("refused") for node, runner in self.at.items() if runner.is_heard(now)}
        return {node: str(words) for node, words in told.items() if words is not None}

    def play_lost(self, host: str, until: float) -> None:
        """Hear a machine no more until then."""
        for runner in self.runners.values():
            runner.deaf = until if runner.host == host else runner.deaf

    def homes(self) -> Dict[int, str]:
        """Return the machine of each node."""
        return {node: runner.host for node, runner in self.at.items()}

    def running(self, now: float) -> List[int]:
        """Return the nodes whose runners answer and have a launcher, also one of an earlier turn."""
        return [node for node, runner in self.at.items() if runner.is_heard(now) and runner.said.get("alive")]

    def are_leaving(self, now: float) -> bool:
        """Say whether somebody has told the runners of all nodes to end that answer."""
        heard = [runner for runner in self.at.values() if runner.is_heard(now)]
        return bool(heard) and all(runner.said.get("leaving") for runner in heard)

    def names(self) -> Dict[str, List[Any]]:
        """Return where the launchers of nodes are: an address, and the slot that tells their port."""
        return {"node-%d" % node: [runner.address, runner.slot] for node, runner in self.at.items()}

    def told(self, now: float) -> Json:
        """Return where nodes are, and how they do, for those who look at the job."""
        ended, refused = self.codes(), self.refused(now)
        return {
            str(node): {
                "host": runner.host,
                "address": runner.address,
                "heard": runner.is_heard(now),
                "runs": node not in ended and node not in refused and runner.said.get("node") == node,
                "refused": None if runner.excluded else refused.get(node),
                "ended": ended.get(node),
                "turn": self.turns[node],
            }
            for node, runner in self.at.items()
        }

    def spares(self, now: float) -> List[Json]:
        """Return the machines without a node, once nodes have machines."""
        taken = {runner.host for runner in self.at.values()}
        silent = self.silent(now)
        rest = [host for host in self.hosts if host not in taken] if self.at else []
        refusing = {runner.host for runner in self.runners.values() if runner.refused is not None}
        state = dict.fromkeys(refusing, "cold")
        state.update(dict.fromkeys(silent, "unreachable"))
        return [{"host": host, "state": state.get(host, "ready")} for host in rest]
