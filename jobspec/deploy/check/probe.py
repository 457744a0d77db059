"""What a container of the job sees: run inside of one by `jobctl check`, with the image's own Python.

    python3 -c "$(cat probe.py)" '{"peers": …}'

Prints one JSON object. Standard library only, Python 3.8 or later; imports nothing of jobctl.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Set

Json = Dict[str, Any]
CALLS = 16  # peers that are called at the same time
ANSWER_TIMEOUT = 2.0  # seconds within which a peer answers
RETRY_INTERVAL = 0.05  # seconds between two calls
REFUSED, ANOTHER = "Connection refused", "something else answers"
SILENCE = 3.0  # seconds after which whoever is asked for a name is taken not to answer
DEVICES = {
    "gpu": r"nvidia\d+",
    "xpu": r"xpu\d+",
    "dcu": r"dri/renderD\d+",
    "npu": r"davinci\d+",
}


def devices(kind: str) -> int:
    """Return how many devices of a kind there are, by their device nodes."""
    names = [path[5:] for path in glob.glob("/dev/*") + glob.glob("/dev/dri/*")]
    return sum(1 for name in names if re.fullmatch(DEVICES.get(kind, r"\b\B"), name))


def driver(kind: str) -> str | None:
    """Return what the driver's own tool says is wrong, None if nothing or if there is no such tool."""
    tool = {"gpu": ["nvidia-smi", "-L"], "npu": ["npu-smi", "info"]}.get(kind)
    if tool is None:
        return None
    try:
        done = subprocess.run(tool, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "%s: %s" % (tool[0], error)
    return None if done.returncode == 0 else done.stdout.decode("utf-8", "replace").strip()[-300:]


def memlock() -> int:
    """Return the limit of locked memory in bytes, -1 for none."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def access(path: str, write: bool) -> str | None:
    """Return why a path cannot be used, None if it can."""
    if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
        return "cannot be read by uid %d" % os.getuid()
    if not write:
        return None
    if not os.path.isdir(path):
        return None if os.access(path, os.W_OK) else "cannot be written by uid %d" % os.getuid()
    name = os.path.join(path, ".jobctl-probe-%s-%d" % (socket.gethostname(), os.getpid()))
    try:
        with open(name, "w") as file:
            file.write("x")
        os.unlink(name)
    except OSError as error:
        return "cannot be written by uid %d: %s" % (os.getuid(), error.strerror)
    return None


def resolves(name: str, address: str) -> str | None:
    """Return an address that a name has here, None if none. If the host has an IPv4 `address`, only IPv4 counts."""
    family = socket.AF_INET if address and ":" not in address else socket.AF_UNSPEC
    try:
        return str(socket.getaddrinfo(name, None, family)[0][4][0])
    except OSError:
        return None


def nobody_answers(address: str) -> bool:
    """Say whether nobody answers who is asked for the name of an address, written as PyTorch does it for each connection to its store."""
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(OSError):  # that there is none is an answer
            # Not getnameinfo, during which no other thread of Python goes on.
            socket.gethostbyaddr("::ffff:%s" % address if "." in address else address)
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    # Piece by piece: whoever stood still himself has not heard silence.
    return not any(answered.wait(SILENCE / 10) for _ in range(10))


def listen(address: str, ports: List[int], seconds: float) -> socket.socket:
    """Return a socket that listens at the first of `ports` that is free; it waits for one where others use them all."""
    late = time.monotonic() + seconds
    for port in itertools.cycle(ports):
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(1024)
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() > late:
                raise
        time.sleep(RETRY_INTERVAL)
    raise ValueError("no ports")


class Meeting:
    """Hosts that call each other: who listens here answers, and stays until all who can come have been here.

    `missing` says why peers were not reached. Nobody listening there yet is no answer: its container may still be on
    its way, for `patience` seconds; other answers are believed after `seconds`. An answer with another token belongs to another check.
    """

    def __init__(self, task: Json) -> None:
        self.token, self.ports, self.seconds = task["token"], task["ports"], task["seconds"]
        self.deadline = time.monotonic() + task["patience"]
        self.missing = {peer["host"]: "no answer" for peer in task["peers"]}
        self.awaited = set(self.missing)
        self.came: Set[str] = set()
        self.listener = listen(task["address"], self.ports, task["patience"] / 2)

    def meet(self, peers: List[Json]) -> None:
        """Call all peers, and answer those who call."""
        threading.Thread(target=self._answer, daemon=True).start()
        with ThreadPoolExecutor(CALLS) as pool:
            list(pool.map(self._call, peers))
        while self.awaited - self.came and time.monotonic() < self.deadline:
            time.sleep(RETRY_INTERVAL)

    def _answer(self) -> None:
        while True:
            link, _ = self.listener.accept()
            try:
                with link:
                    link.settimeout(ANSWER_TIMEOUT)
                    token, _, name = link.recv(256).decode("utf-8", "replace").strip().partition(" ")
                    if token == self.token:
                        link.sendall(b"ok")
                        self.came.add(name)
            except OSError:
                continue

    def _call(self, peer: Json) -> None:
        """Call a peer at one port after the other until it answers."""
        host, late = peer["host"], time.monotonic() + self.seconds
        for port in itertools.cycle(self.ports):
            if time.monotonic() > self.deadline:
                return
            why = self._ask(peer, port)
            if why is None:
                del self.missing[host]
                return
            self.missing[host] = "port %d: %s" % (port, why)
            if why not in (REFUSED, ANOTHER) and time.monotonic() > late:
                self.awaited.discard(host)
                return
            time.sleep(RETRY_INTERVAL)

    def _ask(self, peer: Json, port: int) -> str | None:
        """Return why a peer does not answer at a port, None if it does."""
        try:
            with socket.create_connection((peer["address"], port), ANSWER_TIMEOUT) as link:
                link.sendall(("%s %s\n" % (self.token, peer["me"])).encode())
                link.settimeout(ANSWER_TIMEOUT)
                return None if link.recv(2) == b"ok" else ANOTHER
        except ConnectionRefusedError:
            return REFUSED
        except ConnectionError:  # it has ended, another check's container for example
            return ANOTHER
        except OSError as error:
            return error.strerror or str(error)


def meet(task: Json) -> Json:
    """Meet the peers; return why those were not reached that were not, and at which port they reach us."""
    try:
        meeting = Meeting(task)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        return {"listen": error.strerror or str(error), "taken": taken, "port": None, "unreached": {}}
    meeting.meet(task["peers"])
    return {"listen": None, "taken": False, "port": meeting.listener.getsockname()[1], "unreached": meeting.missing}


def version_of(module: str) -> str | None:
    """Return the version of a module, None if it cannot be imported."""
    code = "import %s as m; print(getattr(m, '__version__', '?'))" % module
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.stdout.decode().strip().splitlines()[-1] if done.returncode == 0 else None


def lacks(test: str) -> str | None:
    """Return what a test says that the image lacks, None if nothing: its own words, or the last of Python's."""
    done = subprocess.run([sys.executable, "-c", test], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode == 0:
        return None
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else "ended with code %d" % done.returncode


def main() -> None:
    """Print what is seen from here."""
    task: Json = json.loads(sys.argv[1])
    # First, as the other hosts wait for it: all else may take a minute here and a moment there (drivers, cold images).
    met = meet(task) if task["ports"] else None
    found = {
        "token": task["token"],
        "meet": met,
        "python": list(sys.version_info[:3]),
        "devices": devices(task["kind"]),
        "driver": driver(task["kind"]) if task["kind"] != "cpu" else None,
        "memlock": memlock(),
        "name": resolves(socket.gethostname(), task["address"]),
        "silent": bool(task["address"]) and nobody_answers(task["address"]),
        "paths": {path: access(path, write) for path, write in task["paths"]},
        "module": version_of(task["module"]) if task["module"] else None,
        "lacks": [lacks(test) for test in task["tests"]],
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
