"""A sum over all ranks of the job by the collectives of its framework: gloo, NCCL, HCCL, mccl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from jobctl.jobspec.deploy.check.fitness.findings import wrong_result
from jobctl.jobspec.deploy.check.fitness.session import ProbeSession
from jobctl.jobspec.deploy.check.fitness.sums import PATTERN, Group, Wrong, blamed, factor, is_sum
from jobctl.jobspec.deploy.check.survey import CheckedHost
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.untrusted import Json, objects
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.frameworks.programs import text_of
from jobctl.jobspec.plan.types import Node
from jobctl.jobspec.records import dataclass

RENDEZVOUS_TIMEOUT = 120.0  # seconds in which all ranks have to come
SUM_TIMEOUT = 300.0  # seconds for all of it: where hosts are busy, a framework is imported for long
ANSWER_TIMEOUT = 60.0  # seconds beside that


@dataclass
class FrameworkSum:
    """The hosts that add up by `program`. `failed` says why a group could not; `backend` is what added up."""

    sessions: Mapping[str, ProbeSession]
    seats: Mapping[str, CheckedHost]
    program: str
    failed: list[str] = field(default_factory=list)
    backend: str = ""

    def findings(self) -> Iterator[Finding]:
        """Have all hosts add up; yield what is wrong. Where all is right, or nobody could add up, nothing is."""
        hosts = tuple(self.sessions)
        bad = self.add_up([hosts]).get(hosts)
        if not bad:
            return
        guilty = blamed(hosts, self.add_up) if len(hosts) > 2 else list(hosts)
        those = f"with {', '.join(hosts)}" if len(hosts) == 2 else "with each host that it was tried with"
        for host in guilty:
            yield wrong_result(host, "collective", f"a sum by {self.backend} is wrong {those}")
        if not guilty:  # it was wrong once, and is right in pairs
            text = f"a sum over all hosts by {self.backend} was wrong, and in pairs of hosts it is right"
            yield from (wrong_result(host, "collective", text) for host in bad)

    def add_up(self, groups: Sequence[Group]) -> Wrong:
        """Have groups of hosts add up, side by side; groups that could not are left out."""
        done = fan_out(groups, self._group, max(1, len(groups)))
        self.failed += [error.message for error in done.failed.values()]
        return {group: found for group, found in done.done.items() if found is not None}

    def _group(self, group: Group) -> list[str] | None:
        """Return the hosts of a group whose ranks have a wrong sum, None if it could not add up. Raises HostError."""
        address = self._address(group[0])
        port = self.sessions[group[0]].ask("port", ANSWER_TIMEOUT, address=address)["port"]
        counts = [ranks_of(_node(self.seats[host])) for host in group]
        firsts = [sum(counts[:number]) for number in range(len(counts))]
        total = sum(counts)

        def run(host: str) -> list[Json]:
            node, first = _node(self.seats[host]), firsts[group.index(host)]
            common = {
                "kind": node.container.devices.kind,
                "address": address,
                "own": self._address(host),
                "port": port,
                "count": total,
                "seconds": RENDEZVOUS_TIMEOUT,
                "pattern": PATTERN,
            }
            ranks = range(counts[group.index(host)])
            inputs = [{**common, "local": n, "rank": first + n, "factor": factor(first + n)} for n in ranks]
            where = {"interface": node.launch.interface, "address": self._address(host)}
            how = {"interface_env": node.launch.interface_env, "inputs": inputs, "seconds": SUM_TIMEOUT}
            said = self.sessions[host].ask(
                "ranks", SUM_TIMEOUT + ANSWER_TIMEOUT, program=text_of(self.program), **where, **how
            )
            return list(objects(said.get("ranks")))

        done = fan_out(group, run, len(group))
        problems = [error.message for error in done.failed.values()]
        problems += [f"{host}: {one['error']}" for host, said in done.done.items() for one in said if "error" in one]
        if problems:
            self.failed.append(problems[0])
            return None
        self.backend = str(next((one.get("backend") for said in done.done.values() for one in said), ""))
        return [host for host in group if not all(is_sum(one.get("sum"), total) for one in done.done[host])]

    def _address(self, host: str) -> str:
        return self.seats[host].host_job.host.address


def _node(seat: CheckedHost) -> Node:
    """Return the node of a host that trains."""
    return next((node for node in seat.nodes if node.role == "trainer"), seat.nodes[0])


def ranks_of(node: Node) -> int:
    """Return how many ranks of a sum a node has: one for each of its devices, and one without devices."""
    devices = node.container.devices
    return 1 if devices.kind == "cpu" else max(1, len(devices.ids or ()) or node.launch.nproc)


def framework_message(finding: Finding, of: FrameworkSum) -> str:
    """Return the message of a host whose part of the plain sum is right, with what came of the framework's."""
    if of.backend and not of.failed:
        return f"{finding.message}, by {of.backend} too"
    return f"{finding.message}; the framework's own collectives were not tried: {'; '.join(of.failed[:1])}"
