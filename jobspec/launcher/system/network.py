"""Addresses, ports, proxies and interfaces."""

from __future__ import annotations

import array
import binascii
import contextlib
import fcntl
import socket
import struct
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.system.files import note

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

    from jobctl.jobspec.launcher.order.order import Order
PORT_TIMEOUT = 0.2  # seconds that a server gets to answer at its port
DATAGRAM = 4096  # bytes; also what a pipe takes whole
AT_FIRST = 0.5  # seconds for which a launcher waits for names: where a name server answers, they take a few thousandths
LOOKED = 0.01  # seconds between two looks whether the first of a job listens, or whether names are known
RESOLVING = 5.0  # seconds for the names of all hosts; where they are not answered, names remain names
PRIVATE_PORTS, PORTS_OF_NODE = (10_000, 20_000), 100  # for what framework launchers choose ports for themselves
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def is_cut(path: str) -> bool:
    """Say whether a drill plays that this host is lost: the file says until when, in seconds since the epoch."""
    try:
        with open(path) as file:
            return time.time() < float(file.read(32))
    except (OSError, ValueError):
        return False


def select_pipe_size() -> int:
    """Return how many bytes a pipe takes whole (PIPE_BUF)."""
    import select

    return select.PIPE_BUF


def open_socket(wished: Any = None) -> Optional[socket.socket]:
    """Return a socket for datagrams at all addresses, of both families where there are two.

    It is at the port that is wished, if that is free: the others know the port of the launcher before.
    """
    places = [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]
    ports = [wished, 0] if isinstance(wished, int) and 0 < wished < 65536 else [0]
    for port, (family, address) in [(port, place) for port in ports for place in places]:
        try:
            made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        except OSError:
            continue
        try:
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            made.bind((address, port))
            made.setblocking(False)
            return made
        except OSError:
            made.close()
    note("no socket for datagrams: other launchers cannot hear this one")
    return None


def open_socket_at(address: str, port: int) -> Optional[socket.socket]:
    """Return a socket for datagrams at this address and port, where the other launchers look for this one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        made.bind((address, port))
    except OSError as error:
        made.close()
        note("cannot listen at %s, port %d: %s" % (address, port, error))
        return None
    made.setblocking(False)
    return made


def number_for(made: socket.socket, address: str, port: int) -> Any:
    """Return an address for `sendto` of what is one already, None of a name: no name server is asked."""
    try:
        return address_for(made, address, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None


def address_for(made: socket.socket, address: str, port: int, flags: int = 0) -> Any:
    """Return an address for `sendto`. Raises OSError for a name that nobody here can resolve, UnicodeError for what cannot be one."""
    flags |= socket.AI_V4MAPPED | socket.AI_ALL if made.family == socket.AF_INET6 else 0
    return socket.getaddrinfo(address, port, made.family, socket.SOCK_DGRAM, 0, flags)[0][4]


def free_port(address: str, first: int, least: int, most: int) -> int:
    """Return the first port from `first` on, between `least` and `most`, at which nobody listens as far as that is known."""
    place = resolved(address)
    for number in range(20):
        port = least + (first - least + number) % (most - least + 1)
        if place is None:
            return port
        with socket.socket(socket.AF_INET6 if ":" in place else socket.AF_INET) as probe:
            probe.settimeout(0.5)
            try:
                probe.connect((place, port))
            except OSError:
                return port
    return first


def ask_aside(seconds: float, ask: Callable[..., None], *given: Any) -> Any:
    """Ask in a thread, and wait so long: a name server that is silent must not keep a launcher from its ticks. Return the thread."""
    import threading

    asking = threading.Thread(target=ask, args=given, daemon=True)
    with contextlib.suppress(RuntimeError):  # no more threads in this container, for now
        asking.start()
        asking.join(seconds)
    return asking


def resolved(name: str, pause: Optional[Callable[[float], object]] = None) -> Optional[str]:
    """Return the address of a host; None of a name that no name server tells soon. With `pause` it waits longer, by that."""
    return name if is_number(name) else numbers_of([name], pause).get(name)


def in_numbers(order: Order, pause: Callable[[float], object]) -> Order:
    """Return an order with IPv4 addresses in place of names. Names that are not resolved soon go through `pause`.

    Interfaces are found by them, and Paddle's launcher leaves names without a dot aside, and then waits for ever. A name
    that means this machine may mean another one elsewhere, and remains.
    """
    addresses = dict.fromkeys([order.rendezvous.address, *(m.address for m in order.members)])
    known = numbers_of([address for address in addresses if not is_number(address)], pause)
    return order.at({n: number for n, number in known.items() if n == "localhost" or not number.startswith("127.")})


def numbers_of(names: Sequence[str], pause: Optional[Callable[[float], object]]) -> Dict[str, str]:
    """Return the IPv4 addresses of those names that name servers tell soon. With `pause` it waits longer, by that."""
    known: Dict[str, str] = {}
    until = time.monotonic() + RESOLVING
    asking = ask_aside(AT_FIRST, find_numbers, names, known, until) if names else None
    while pause is not None and asking is not None and asking.is_alive() and time.monotonic() < until:
        pause(LOOKED)
    return dict(known)


def is_number(address: str) -> bool:
    """Say whether an address is one already, and no name."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except (OSError, ValueError):
        return False
    return True


def find_numbers(names: Iterable[str], known: Dict[str, str], until: float) -> None:
    """Add the IPv4 addresses of names to `known`, one after the other, up to the moment `until`."""
    for name in names:
        number = number_of(name) if time.monotonic() < until else None
        if number is not None:
            known[name] = number


def number_of(name: str) -> Optional[str]:
    """Return the IPv4 address of a name, None where it has none."""
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except (OSError, UnicodeError):
        return None


def answers(endpoint: str) -> bool:
    """Say whether somebody listens at address:port. One whose name no name server tells soon does not, as far as is known."""
    address, _, port = endpoint.rpartition(":")
    place = address.strip("[]")
    found: List[bool] = []
    if is_number(place):
        return connects(place, port)
    ask_aside(AT_FIRST, lambda: found.append(connects(place, port)))
    return any(found)


def one_that_answers(endpoints: Sequence[str]) -> str:
    """Return the first at which somebody listens; where nobody does, the first of all, so that its client says so."""
    return next((endpoint for endpoint in endpoints if answers(endpoint)), endpoints[0])


def etcd_master(endpoint: str) -> str:
    """Return a member of etcd (host:port) as Paddle's launcher wants it.

    Up to 3.0 it cuts `etcd://` off by `strip`, and with it the first letters of `dgx01`; capitals mean the same host.
    """
    return "etcd://%s" % endpoint.upper()


def connects(address: str, port: str) -> bool:
    """Say whether somebody listens there. A name server may keep it for half a minute."""
    try:
        socket.create_connection((address, int(port)), PORT_TIMEOUT).close()
    except (OSError, ValueError):
        return False
    return True


def meet(endpoint: Optional[str], seconds: float) -> None:
    """Return as soon as somebody listens at address:port, or after `seconds`; at once where there is no such place.

    A framework that connects there a moment too early tries again half a second later (torch), a whole one (JAX), or
    three (Paddle's store).
    """
    until = time.monotonic() + seconds
    while endpoint is not None and not answers(endpoint) and time.monotonic() < until:
        time.sleep(LOOKED)


SIOCGIFCONF = 0x8912  # all IPv4 addresses of this host
ADDRESSES = 1 << 16  # bytes of room for them


def is_scrubbed(name: str, patterns: Sequence[str]) -> bool:
    """Say whether a variable is one of `patterns`, where `PADDLE_*` means all that begin so."""
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)


def pass_by_proxies(environ: Dict[str, str], addresses: Sequence[str]) -> None:
    """Where `environ` has proxies, have them left out on the way to the job's own nodes, and to its etcd.

    Some clients read the variables in capitals, some the others, so both get the addresses, beside their own.
    """
    if not any(name.lower() in PROXIES for name in environ):
        return
    for name, other in (("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")):
        given = environ.get(name, environ.get(other, "")).split(",")
        environ[name] = ",".join(dict.fromkeys([*filter(None, given), *addresses]))


def port_range(job: str, node: int) -> str:
    """Return "first:last" of ports that no other node of the job uses, and other jobs on this host rarely."""
    blocks = (PRIVATE_PORTS[1] - PRIVATE_PORTS[0]) // PORTS_OF_NODE
    first = PRIVATE_PORTS[0] + (binascii.crc32(job.encode()) + node) % blocks * PORTS_OF_NODE
    return "%d:%d" % (first, first + PORTS_OF_NODE - 1)


def interface_of(address: str) -> Optional[str]:
    """Return the network interface that has an address, None if there is none."""
    if address.startswith("127."):
        return "lo"
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except OSError:  # a name
        return None
    return own_addresses().get(packed)


def own_addresses() -> Dict[bytes, str]:
    """Return the interface of each address of this host; one interface may have several."""
    found: Dict[bytes, str] = {}
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:  # there is none without IPv6
        for fields in map(str.split, file):
            found[bytes.fromhex(fields[0])] = fields[5]
    room = array.array("B", bytes(ADDRESSES))
    size = 40 if struct.calcsize("P") == 8 else 32  # of `struct ifreq`: a name of 16 bytes, and an address
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("iP", ADDRESSES, room.buffer_info()[0])
        for at in range(0, struct.unpack("iP", fcntl.ioctl(probe.fileno(), SIOCGIFCONF, asked))[0], size):
            label = bytes(room[at : at + 16]).partition(b"\0")[0].decode()
            found[bytes(room[at + 20 : at + 24])] = label.partition(":")[0]  # eth0:1 is a label of eth0
    return found
