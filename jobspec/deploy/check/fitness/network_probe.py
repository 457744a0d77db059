"""The part of the probe that measures links between hosts, and adds numbers up over all of them.

Plain TCP at the address where the other nodes reach the host. It is sent as one file with probe.py, see session.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import socket
import struct
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple

Json = Dict[str, Any]
PORTS = (20000, 29999)  # that have to be open between hosts of jobs
BLOCK = 1 << 18  # bytes that are received at once
CONNECT_TIMEOUT = 20.0  # seconds in which the other host has to come
TCP_INFO = 11  # of Linux
MIN_RATES = 4  # rates, with fewer of which a transfer says little of a link
MAX_TIME_FACTOR = 4  # times its seconds that a transfer may take until enough has come
LISTENERS: Dict[str, socket.socket] = {}
FACTOR, WORDS = 2654435761, 1024  # of the vectors that hosts add up: FACTOR * (k + 1) * (host + 1), for k < WORDS
MODULO = (1 << 64) - 1


def waited() -> float:
    """Return for how many seconds this thread could have run, and had no core."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0


def listen(task: Json) -> Json:
    """Listen at a free port of the host's address; return the port."""
    close_all()
    family, _, _, _, where = socket.getaddrinfo(task["address"], None, type=socket.SOCK_STREAM)[0]
    for port in random.sample(range(*PORTS), 50):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind((where[0], port))
        except OSError as error:
            listener.close()
            problem = error
            continue
        listener.listen(16)
        listener.settimeout(CONNECT_TIMEOUT)
        LISTENERS["here"] = listener
        return {"port": port}
    raise problem


def free_port(task: Json) -> Json:
    """Return a port of the host's address at which nobody listens."""
    found = listen(task)
    close_all()
    return found


def interface(name: str | None, address: str | None) -> str:
    """Return the network interface of the host: as named, or the one that has its address; "" where that is a name."""
    if name or not address:
        return name or ""
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:  # there is none without IPv6
        number = socket.inet_pton(socket.AF_INET6, address).hex()
        return next((words[5] for words in map(str.split, file) if words[0] == number), "")
    for _, there in socket.if_nameindex():
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            found = fcntl.ioctl(link.fileno(), 0x8915, struct.pack("256s", there.encode()[:15]))  # SIOCGIFADDR
            if socket.inet_ntoa(found[20:24]) == address:
                return there
    return ""


def close_all() -> None:
    """Listen no more."""
    while LISTENERS:
        LISTENERS.popitem()[1].close()


def accept(word: str) -> socket.socket:
    """Return the next connection whose first bytes are `word`: others may call, too."""
    while True:
        link, _ = LISTENERS["here"].accept()
        link.settimeout(CONNECT_TIMEOUT)
        with contextlib.suppress(OSError):
            if exactly(link, len(word)) == word.encode():
                return link
        link.close()


def exactly(link: socket.socket, count: int) -> bytes:
    """Receive so many bytes."""
    parts = b""
    while len(parts) < count:
        data = link.recv(count - len(parts))
        if not data:
            raise ConnectionError("the other host closed the connection")
        parts += data
    return parts


def connect(task: Json) -> socket.socket:
    """Connect to the other host, and say the word that it waits for."""
    link = socket.create_connection((task["to"], task["port"]), CONNECT_TIMEOUT)
    link.sendall(task["word"].encode())
    return link


def in_threads(count: int, run: Callable[[int], None]) -> None:
    """Run something so many times at once; raise the first error."""
    errors: List[BaseException] = []

    def safely(number: int) -> None:
        try:
            run(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=safely, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def receive(task: Json) -> Json:
    """Receive over several connections for some seconds, longer if little came; return how much, and in which time."""
    links = [accept(task["word"]) for _ in range(task["streams"])]
    close_all()
    counts, ends, waits, works = [0] * len(links), [0.0] * len(links), [0.0] * len(links), [0.0] * len(links)
    begin = time.monotonic()

    def take(number: int) -> None:
        link, space, still, worked = links[number], bytearray(BLOCK), waited(), time.thread_time()
        link.settimeout(MAX_TIME_FACTOR * task["seconds"] + CONNECT_TIMEOUT)
        while (spent := time.monotonic() - begin) < task["seconds"] or (
            sum(counts) < task["least"] and spent < MAX_TIME_FACTOR * task["seconds"]
        ):
            got = link.recv_into(space)
            if not got:
                break
            counts[number] += got
        ends[number], waits[number], works[number] = time.monotonic(), waited() - still, time.thread_time() - worked
        link.close()

    in_threads(len(links), take)
    return {"bytes": sum(counts), "seconds": max(ends) - begin, "waited": max(waits), "worked": max(works)}


def send(task: Json) -> Json:
    """Send over several connections until the other host has had enough; return what the kernel tells of it.

    That is how many segments were sent, and how many of them again; where there is one connection, the rate at which data
    arrived (see `usual_rate`), and whether the kernel knows rates at all.
    """
    block, begin = os.urandom(task["block"]), time.monotonic()
    links = [connect(task) for _ in range(task["streams"])]
    told: List[List[TcpState]] = [[TcpState(0, 0, 0, True)] for _ in links]  # after each block
    waits, works = [0.0] * len(links), [0.0] * len(links)

    def give(number: int) -> None:
        link, still, worked = links[number], waited(), time.thread_time()
        link.settimeout(CONNECT_TIMEOUT)
        with contextlib.suppress(ConnectionError):  # the other host has had enough
            while time.monotonic() - begin < MAX_TIME_FACTOR * task["seconds"] + CONNECT_TIMEOUT:
                link.sendall(block)
                told[number].append(of_tcp(link))
        waits[number], works[number] = waited() - still, time.thread_time() - worked
        link.close()

    in_threads(len(links), give)
    again, sent = sum(one[-1].again for one in told), sum(one[-1].sent for one in told)
    rate, tells = usual_rate(told[0]) if len(links) == 1 else 0, any(one.rate for one in told[0])
    return {"again": again, "sent": sent, "rate": rate, "tells": tells, "waited": max(waits), "worked": max(works)}


class TcpState(NamedTuple):
    """What the kernel tells of a connection: zeros where it does not.

    `again` is how many segments were lost, `sent` how many were sent, `rate` at how many bytes a second they arrived last.
    `idle` says that the connection had nothing to send meanwhile.
    """

    again: int
    sent: int
    rate: int
    idle: bool


def of_tcp(link: socket.socket) -> TcpState:
    """Return the state of a connection. What the other host had got already was sent again, but not lost."""
    found, idle = [], True
    with contextlib.suppress(OSError, struct.error):
        info = link.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 256)
        idle = bool(info[7] & 1)  # tcpi_delivery_rate_app_limited
        for kind, offset in (("=I", 100), ("=I", 136), ("=Q", 160), ("=I", 216)):
            found.append(struct.unpack_from(kind, info, offset)[0])
    again, sent, rate, twice = (*found, 0, 0, 0, 0)[:4]
    return TcpState(max(0, again - twice), sent, rate, idle)


def usual_rate(told: List[TcpState]) -> int:
    """Return the median of the rates at which data arrived while there always was some to send; 0 if they are too few.

    Where a sender waits for a core, its connection is idle. What it sends then arrives at once, as in a first moment any
    link takes a little. The kernel keeps that rate until there is another one, or a higher one.
    """
    known = sorted(one.rate for one in told if one.rate and not one.idle)
    return known[(len(known) - 1) // 2] if len(known) >= MIN_RATES else 0


# Adding up over all hosts.


def add(one: int, other: int) -> int:
    """Add two words."""
    return (one + other) & MODULO


def packed(words: List[int]) -> bytes:
    """Return words as bytes."""
    return struct.pack("<%dQ" % len(words), *words)


def reduce(task: Json) -> Json:
    """Add this host's words to those of the hosts before it, pass them on, and take the sum of all.

    The words go around once to be added up, and once more so that all have the sum. Digests tell at which host they
    first were wrong: as they came, and after this host added its own.
    """
    index, count, word = task["index"], task["count"], task["word"]
    own = [(FACTOR * (k + 1) * (index + 1)) & MODULO for k in range(WORDS)]
    begin = time.monotonic()
    onward = connect({**task, "word": word})
    before = accept(word)
    close_all()
    onward.settimeout(task["seconds"])
    before.settimeout(task["seconds"])
    with onward, before:
        came = exactly(before, 8 * WORDS) if index else packed([0] * WORDS)
        total = packed([add(a, b) for a, b in zip(struct.unpack("<%dQ" % WORDS, came), own)])
        onward.sendall(total)
        everyone = exactly(before, 8 * WORDS)
        if index < count - 1:
            onward.sendall(everyone)
    digests = [hashlib.sha256(data).hexdigest() for data in (came, total, everyone)]
    return {"came": digests[0], "added": digests[1], "sum": digests[2], "seconds": time.monotonic() - begin}


NETWORK_TASKS: Dict[str, Callable[[Json], Json]] = {
    "listen": listen,
    "port": free_port,
    "receive": receive,
    "send": send,
    "reduce": reduce,
}
