"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import random
import socket

# Below those that Linux gives to whoever connects, or asks for any port (32768 and up): it gives these to other tests between
# the moment when a test looks for one, and the moment when its server listens.
FIRST, LAST = 15000, 25000


def free_ports(count: int) -> list[int]:
    """Return ports in a row that nobody uses, on any address."""
    choose = random.SystemRandom()  # not those of another worker, whatever seed tests have set
    while True:
        first = choose.randrange(FIRST, LAST - count)
        ports = list(range(first, first + count))
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in ports:
                stack.enter_context(socket.socket()).bind(("0.0.0.0", port))
            return ports
