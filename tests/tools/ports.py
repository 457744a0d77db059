"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

# Between a test's look for a port and the moment when its server listens, nobody else may get it. So they lie below those
# that Linux gives to whoever connects, or asks for any port (32768 and up), and those that jobs take (20000 to 29999).
FIRST, LAST = 15000, 20000
_claims: list[contextlib.ExitStack] = []  # as long as this process lives


def free_ports(count: int) -> list[int]:
    """Return ports in a row that nobody uses, on any address. No other process of tests gets them while this one lives."""
    choose = random.SystemRandom()  # not those of another worker, whatever seed tests have set
    while True:
        first = choose.randrange(FIRST, LAST - count)
        ports = list(range(first, first + count))
        with contextlib.suppress(OSError), contextlib.ExitStack() as claims, contextlib.ExitStack() as bound:
            for port in ports:
                claims.enter_context(_claim(port))
                bound.enter_context(socket.socket()).bind(("0.0.0.0", port))
            _claims.append(claims.pop_all())
            return ports


def _claim(port: int) -> IO[bytes]:
    """Return the file that stands for a port, locked as long as it is open. Raises OSError if another process has it."""
    folder = Path(tempfile.gettempdir()) / f"jobctl-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    file = (folder / str(port)).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file
