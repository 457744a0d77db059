"""The TCP ports of nodes on hosts: through the connections that jobctl has, wherever the nodes are now."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable, NodePlace
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.errors import DeployError, HostError, NothingToEnter, PortClosed
from jobctl.jobspec.deploy.model.host_state import HostState, control_of
from jobctl.jobspec.deploy.transport.relay import LOOPBACK
from jobctl.jobspec.plan.types import HostRef, Plan

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob
    from jobctl.jobspec.deploy.targets.host_fleet import HostFleet
    from jobctl.jobspec.deploy.transport.base import Transport

INTERVAL = 1.0  # seconds between two looks at a host, which also show whether its connection is still there
# Seconds that a connection waits for a host that does not answer: it may be back, or the node moves
HOST_TIMEOUT = 10.0
SETTLED = 1.0  # seconds after the first answer in which other hosts may tell of a newer generation


def home_of(node: int | str, control: Control, plan: Plan | None) -> HostRef:
    """Return where a node of a generation, or a service of a plan, is. Raises DeployError for one that is nowhere."""
    if isinstance(node, str):
        named = next((service.host for service in plan.services if service.name == node), None) if plan else None
        if named is None:
            raise DeployError(f"the job has no {node}")
        return named
    if control.generation is None or control.ledger.result is not None:
        raise NothingToEnter(f"node {node} is on no host: the job does not run", "`jobctl up` starts it")
    members = {member.node: HostRef(member.host, member.address) for member in control.generation.members}
    if node in members:
        return members[node]
    every = ", ".join(map(str, sorted(members)))
    known = {one.index for one in plan.nodes} if plan else set()
    if node in known:
        raise NothingToEnter(f"node {node} is on no host: generation {control.generation.number} has the nodes {every}")
    raise DeployError(f"the job has no node {node}", f"it has the nodes {every}")


def open_port(transport: Transport, home: HostRef, port: int) -> Any:
    """Connect to a port of a host's loopback address, where most programs listen, otherwise of a node's own."""
    try:
        return transport.open_port(LOOPBACK, port)
    except PortClosed:
        with contextlib.suppress(PortClosed):
            return transport.open_port(home.address, port)
        raise


class HostPorts:
    """The ports of nodes on hosts. A thread for each host looks which generation it has, so that a dead host delays nobody."""

    def __init__(self, fleet: HostFleet) -> None:
        self._fleet = fleet
        self._seen: dict[str, HostState] = {}
        self._down: dict[str, DeployError] = {}
        self._told = threading.Condition(threading.RLock())
        self._over = threading.Event()

    @contextlib.contextmanager
    def following(self) -> Iterator[HostPorts]:
        """Follow where nodes are for the length of the block. Raises AllUnreachable if no host answers at first."""
        for host_job in self._fleet.host_jobs.values():
            threading.Thread(target=self._follow, args=(host_job,), daemon=True).start()
        try:
            self._wait_for_first_answers()
            yield self
        finally:
            self._over.set()

    def _follow(self, host_job: HostJob) -> None:
        while not self._over.is_set():
            try:
                seen = host_job.observe(containers=())  # files tell where nodes are: the engine is not asked
            except DeployError as error:
                with self._told:
                    self._down[host_job.host.name] = error
                    self._told.notify_all()
            else:
                with self._told:
                    self._seen[host_job.host.name] = seen
                    self._down.pop(host_job.host.name, None)
                    self._told.notify_all()
            self._over.wait(INTERVAL)

    def _wait_for_first_answers(self) -> None:
        first: float | None = None
        with self._told:
            while {*self._seen, *self._down} < set(self._fleet.host_jobs):
                if first is None and self._control().generation is not None:
                    first = time.monotonic()
                if first is not None and time.monotonic() - first > SETTLED:
                    return
                self._told.wait(INTERVAL)
            if not self._seen:
                raise AllUnreachable(self._down, self._fleet.merge({}, self._down))

    def _control(self) -> Control:
        return control_of(self._seen)

    def _home(self, node: int | str) -> HostRef:
        with self._told:
            return home_of(node, self._control(), self._fleet.plan)

    def place(self, node: int | str) -> NodePlace:
        """Return where a node is now."""
        home = self._home(node)
        problem = self._down.get(home.name)
        host_job = self._fleet.host_jobs.get(home.name)
        return NodePlace(home.name, problem.message if problem else None, host_job is not None and host_job.host.local)

    def dial(self, node: int | str, port: int) -> Any:
        """Return a socket (or a channel, which is like one) to a port of a node.

        If its host does not answer, wait a while: it may be back soon, or the node moves. Raises DeployError after that.
        """
        deadline = time.monotonic() + HOST_TIMEOUT
        again = True
        while True:
            home = self._answering(node, deadline)
            try:
                found = self._opened(node, home, port)
                if found is not None:
                    return found
            except HostError as error:
                # It has moved since, or the connection was lost just now and can be made again.
                if self._home(node) == home and not (again and error.code == "lost"):
                    raise
                again = self._home(node) != home

    def _answering(self, node: int | str, deadline: float) -> HostRef:
        """Return where a node is, once that host answers. Raises its problem after `deadline`."""
        with self._told:
            while (problem := self._down.get((home := self._home(node)).name)) is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise problem
                self._told.wait(min(left, INTERVAL))
            return home

    def _opened(self, node: int | str, home: HostRef, port: int) -> Any:
        """Connect to a port of a host; return None if the node moves meanwhile: a dead host would take long to give up."""
        opening: Future[Any] = Future()
        opening.add_done_callback(self._tell)
        threading.Thread(target=self._open_into, args=(opening, home, port), daemon=True).start()
        with self._told:
            while not opening.done() and self._home(node) == home:
                self._told.wait(INTERVAL)
        if opening.done():
            return opening.result()
        opening.add_done_callback(_close)
        return None

    def _open_into(self, opening: Future[Any], home: HostRef, port: int) -> None:
        try:
            made = self._open(home, port)
        except BaseException as error:
            opening.set_exception(error)
        else:
            opening.set_result(made)

    def _tell(self, opening: Future[Any]) -> None:
        with self._told:
            self._told.notify_all()

    def _open(self, home: HostRef, port: int) -> Any:
        host_job = self._fleet.host_jobs.get(home.name)
        if host_job is None:
            raise DeployError(f"{home.name} is not among the hosts that jobctl knows", "name them all with `--hosts`")
        return open_port(host_job.transport, home, port)


def _close(opening: Future[Any]) -> None:
    """Close what was opened too late."""
    if opening.exception() is None:
        with contextlib.suppress(OSError, EOFError):
            opening.result().close()
