"""TCP ports of this machine that lead to ports of a job's nodes, wherever the nodes are."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve.names import is_service, node_number
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle, NodePlace, NodePorts
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.plan.types import Plan

_FORWARD = re.compile(r"(?P<local>[0-9]{1,9})(?::(?P<node>[^:]+)(?::(?P<port>[0-9]{1,9}))?)?")
FORM = "write PORT, PORT:NODE or PORT:NODE:PORT, for example `6006`, `6006:1` or `16006:1:6006`"


@dataclass(frozen=True, slots=True)
class PortForward:
    """A port of this machine, and the node's port that it leads to; `node` as a user names it."""

    local: int
    node: str
    port: int


def is_port_forward(text: str) -> bool:
    """Say whether a word is meant as PORT[:NODE[:PORT]], and not as a job: names begin with a letter, files have a dot or slash."""
    return text[:1].isdigit() and not {"/", "."} & set(text)


def parse_port_forward(text: str) -> PortForward:
    """Return what PORT[:NODE[:PORT]] means: of node 0 where none is named, the same port where only one is. Raises Refused."""
    found = _FORWARD.fullmatch(text)
    if found is None:
        raise Refused(f"`{text}` does not say what to forward", FORM)
    made = PortForward(int(found["local"]), found["node"] or "0", int(found["port"] or found["local"]))
    for port in (made.local, made.port):
        if not 0 < port < 65536:
            raise Refused(f"`{text}`: {port} is not a valid port", "ports are 1 to 65535")
    return made


def forward_ports(handle: Handle, wanted: Sequence[PortForward], reporter: Reporter) -> NoReturn:
    """Serve connections to ports of this machine until something interrupts it. Raises Refused."""
    from jobctl.jobspec.deploy.model.errors import DeployError, HostError
    from jobctl.jobspec.deploy.transport.relay import listen, serve

    with contextlib.ExitStack() as stack:
        try:
            nodes = [_node(handle.plan, one) for one in wanted]
            listeners = [stack.enter_context(listen(one.local)) for one in wanted]
            ports = stack.enter_context(handle.ports())
            own = frozenset(one.local for one in wanted)
            routes = [_Route(one, node, ports, own, reporter) for one, node in zip(wanted, nodes, strict=True)]
            for route in routes:
                route.begin()
        except HostError:
            raise
        except DeployError as error:
            raise Refused(error.message, error.hint) from error

        def look() -> None:
            for route in routes:
                route.look()

        serve({listener: route.connect for listener, route in zip(listeners, routes, strict=True)}, look)


def _node(plan: Plan | None, one: PortForward) -> int | str:
    return one.node if is_service(plan, one.node) else node_number(plan, one.node)


class _Route:
    """One port that is forwarded. It tells where it leads, and each problem once until that is over."""

    def __init__(
        self, wanted: PortForward, node: int | str, ports: NodePorts, own: frozenset[int], reporter: Reporter
    ) -> None:
        self._wanted, self._node, self._ports, self._own, self._reporter = wanted, node, ports, own, reporter
        self._name = f"node {node}" if isinstance(node, int) else node
        self._host = ""
        self._told: set[str] = set()  # problems, until they are over
        self._away = False  # whether the host did not answer when last looked at
        self._open: set[tuple[socket.socket, Any]] = set()  # connections that are served, and what each leads to
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Tell where it leads. Raises DeployError if that is nowhere."""
        place = self._ports.place(self._node)
        self._refuse_itself(place)
        self._host = place.host
        self._reporter.say(
            f"127.0.0.1:{self._wanted.local} -> port {self._wanted.port} of {self._name} on {place.host}"
        )

    def look(self) -> None:
        """Tell where it leads now, and what keeps its host from answering."""
        from jobctl.jobspec.deploy.model.errors import DeployError

        try:
            place = self._ports.place(self._node)
        except DeployError as error:
            self._tell(error.message)
            return
        if place.host != self._host:
            self._host, self._away = place.host, False
            self._told.clear()
            self._cut()  # a host that is gone says no goodbye: clients would wait for it
            self._reporter.say(f"{self._name} is on {place.host} now: 127.0.0.1:{self._wanted.local} leads there")
        if place.problem is not None:
            self._tell(f"{place.problem}; trying again")
        elif self._away:
            self._told.clear()
            self._reporter.say(f"{place.host} answers again")
        self._away = place.problem is not None

    def connect(self, connection: socket.socket) -> None:
        """Serve one connection, until both sides have ended."""
        from jobctl.jobspec.deploy.model.errors import DeployError
        from jobctl.jobspec.deploy.transport.relay import relay

        try:
            self._refuse_itself(self._ports.place(self._node))
            there = self._ports.dial(self._node, self._wanted.port)
        except DeployError as error:
            self._tell(f"{self._name}: {error.message}" + (f" ({error.hint})" if error.hint else ""))
            return
        self._told.clear()
        pair = connection, there
        self._open.add(pair)
        try:
            relay(connection, there)
        finally:
            self._open.discard(pair)

    def _cut(self) -> None:
        """End all connections, in the background: to close one to a dead host may take long."""

        def end(connection: socket.socket, there: Any) -> None:
            for side in (connection, there):
                with contextlib.suppress(OSError, EOFError):
                    side.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError, EOFError):
                there.close()  # who reads a channel does not notice that it was shut down

        for pair in list(self._open):
            threading.Thread(target=end, args=pair, daemon=True).start()

    def _refuse_itself(self, place: NodePlace) -> None:
        """Raise DeployError where the port that is meant is one of those that are forwarded: connections would go in a circle."""
        from jobctl.jobspec.deploy.model.errors import DeployError

        if place.here and self._wanted.port in self._own:
            message = f"{self._name} is on this machine: port {self._wanted.port} would lead to itself"
            raise DeployError(message, f"open 127.0.0.1:{self._wanted.port} itself, or choose another local port")

    def _tell(self, problem: str) -> None:
        with self._lock:
            if problem in self._told:
                return
            self._told.add(problem)
        self._reporter.say(problem)
