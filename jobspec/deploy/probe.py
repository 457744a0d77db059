"""What a container of the job sees: run inside of one by `jobctl check`, with the image's own Python.

    python3 -c "$(cat probe.py)" '{"peers": …}'

Prints one JSON object. Standard library only, Python 3.8 or later; imports nothing of jobctl.
"""

from __future__ import annotations

import glob
import json
import os
import re
import resource
import select
import socket
import subprocess
import sys
import time
from typing import Any, Dict

Json = Dict[str, Any]
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


def size_of(path: str) -> int | None:
    """Return the size of a file system in bytes."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


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


def resolves(name: str) -> str | None:
    """Return the address that a name has here, None if none."""
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except OSError:
        return None


def meet(address: str, port: int, peers: list[Json], seconds: float) -> Json:
    """Listen at `port`, connect to all peers, and stay until all have been here or the time is up."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        return {"listen": error.strerror or str(error), "unreached": {}}
    listener.listen(1024)
    listener.setblocking(False)
    missing = {peer["host"]: "no answer" for peer in peers}
    came: set[str] = set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (missing or len(came) < len(peers)):
        for peer in [peer for peer in peers if peer["host"] in missing]:
            welcome(listener, came)
            try:
                with socket.create_connection((peer["address"], port), 1.0) as link:
                    link.sendall(("%s\n" % peer["me"]).encode())
                    link.settimeout(1.0)
                    if link.recv(2) == b"ok":
                        del missing[peer["host"]]
            except OSError as error:
                missing[peer["host"]] = error.strerror or str(error)
        welcome(listener, came, 0.05)
    return {"listen": None, "unreached": missing}


def welcome(listener: socket.socket, came: set[str], wait: float = 0.0) -> None:
    """Answer whoever has called."""
    while select.select([listener], [], [], wait)[0]:
        try:
            link, _ = listener.accept()
            with link:
                link.settimeout(1.0)
                came.add(link.recv(256).decode("utf-8", "replace").strip())
                link.sendall(b"ok")
        except OSError:
            continue


def version_of(module: str) -> str | None:
    """Return the version of a module, None if it cannot be imported."""
    code = "import %s as m; print(getattr(m, '__version__', '?'))" % module
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.stdout.decode().strip().splitlines()[-1] if done.returncode == 0 else None


def main() -> None:
    """Print what is seen from here."""
    task: Json = json.loads(sys.argv[1])
    found = {
        "python": list(sys.version_info[:3]),
        "devices": devices(task["kind"]),
        "driver": driver(task["kind"]) if task["kind"] != "cpu" else None,
        "memlock": memlock(),
        "shm": size_of("/dev/shm"),
        "name": resolves(socket.gethostname()),
        "paths": {path: access(path, write) for path, write in task["paths"]},
        "module": version_of(task["module"]) if task["module"] else None,
    }
    found["meet"] = meet(task["address"], task["port"], task["peers"], task["seconds"]) if task["port"] else None
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
