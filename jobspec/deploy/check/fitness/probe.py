"""Measures the host that it runs on: in a container like the job's, or on the host itself with its Python.

    python3 -c "$(cat probe.py)" TOKEN

Reads tasks, one JSON object a line, and prints one JSON object with TOKEN for each, until its input ends. Standard
library only, Python 3.8 or later. It is sent as one file with network_probe.py. What only a framework can do, it does by
programs that come with a task (jobspec/frameworks/programs).
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List

from jobctl.jobspec.deploy.check.fitness.network_probe import NETWORK_TASKS, in_threads, interface, waited

Json = Dict[str, Any]
SILENCE = 300  # seconds without a task after which jobctl is gone, beside those that it waits for the task
ROUNDS = 5000  # of PBKDF2 in one step, some milliseconds
BUFFER = 16 << 20  # bytes that a step copies: more than most caches of one core
COPIERS = 8  # processes that copy at the same time, at most
PROGRAMS: Dict[str, Json] = {}  # that have been run here, by their text
PIECE = 4 << 20  # bytes that are written to storage before the next look at the clock
INFINIBAND = "/sys/class/infiniband"  # that of RoCE, too
NVIDIA = (
    "index,name,driver_version,vbios_version,memory.total,power.limit,clocks.max.sm,pcie.link.width.current,"
    "ecc.errors.uncorrected.volatile.total,retired_pages.pending"
)
# GPUs since Ampere remap rows of memory instead of retiring pages. Old drivers refuse a query that has these names.
REMAPPED = ",remapped_rows.pending,remapped_rows.failure"
ROCM = [
    "--showproductname",
    "--showvbios",
    "--showdriverversion",
    "--showmeminfo",
    "vram",
    "--showmaxpower",
    "--showsclkrange",
    "--json",
]
TOOLS = {  # what the drivers' own tools are asked, by kind of device
    "gpu": [
        ["nvidia-smi", "--query-gpu=" + NVIDIA + REMAPPED, "--format=csv,noheader,nounits"],
        ["nvidia-smi", "--query-gpu=" + NVIDIA, "--format=csv,noheader,nounits"],
        ["rocm-smi", *ROCM],
    ],
    "dcu": [["rocm-smi", *ROCM]],
    "npu": [["npu-smi", "info"]],
}

# What the host is.


def quota() -> float:
    """Return how many cores this control group may use, infinite where nothing limits it."""
    for path, other in (
        ("/sys/fs/cgroup/cpu.max", None),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
    ):
        with contextlib.suppress(OSError, ValueError):
            words = read(path).split() + (read(other).split() if other else [])
            if words[0] not in ("max", "-1"):
                return int(words[0]) / int(words[1])
    return float("inf")


def cores() -> float:
    """Return how many cores processes may use here."""
    return min(float(len(os.sched_getaffinity(0))), quota())


def workers() -> int:
    """Return how many processes use all cores."""
    return max(1, min(256, int(cores() + 0.999)))


def read(path: str) -> str:
    """Return the text of a file."""
    with open(path) as file:
        return file.read()


def first(pattern: str, path: str) -> str | None:
    """Return what a pattern finds first in a file, None if nothing."""
    with contextlib.suppress(OSError):
        found = re.search(pattern, read(path), re.M)
        return found.group(1).strip() if found else None
    return None


def inventory(task: Json) -> Json:
    """Return what the host is: numbers and names, by what they are called."""
    memory = first(r"^MemTotal:\s*(\d+)", "/proc/meminfo")
    found: Json = {
        "cores": cores(),
        "memory in GiB": round(int(memory) / 2**20, 1) if memory else None,
        "processor": first(r"^model name\s*: (.*)$", "/proc/cpuinfo") or platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    with contextlib.suppress(OSError, ValueError):
        name = interface(task.get("interface"), task.get("address")) or only_card()
        speed = int(read("/sys/class/net/%s/speed" % name))
        if speed > 0:
            found["network in Mbit/s"] = speed
    found.update(rdma_ports())
    return {"items": found, "driver": driver(str(task.get("kind")))}


def rdma_ports() -> Json:
    """Return the state and the rate of each port for RDMA, by its device and number: `4: ACTIVE, 200 Gb/sec (4X HDR)`."""
    found = {}
    for path in glob.glob(INFINIBAND + "/*/ports/*"):
        with contextlib.suppress(OSError):
            what = [read("%s/%s" % (path, name)).strip() for name in ("state", "rate")]
            found["RDMA port %s of %s" % (path.split("/")[-1], path.split("/")[-3])] = ", ".join(what)
    return found


def only_card() -> str:
    """Return the network interface of the host that is a network card, "" if there are several."""
    names = [path.split("/")[-2] for path in glob.glob("/sys/class/net/*/device")]
    return names[0] if len(names) == 1 else ""


def driver(kind: str) -> Json:
    """Return what the first tool says that knows devices of a kind, {} where none works."""
    for argv in TOOLS.get(kind, ()):
        text = printed(argv)
        if text.strip():
            errors = [["rocm-smi", "--showrasinfo", "all"]] if argv[0] == "rocm-smi" else []
            if argv[0] == "npu-smi":
                errors = [["npu-smi", "info", "-t", "ecc", "-i", number] for number in npus(text)]
            return {"tool": argv[0], "text": text, "errors": "\n".join(side_by_side(errors))}
    return {}


def npus(text: str) -> List[str]:
    """Return the numbers of the NPUs of a table of `npu-smi info`."""
    return list(dict.fromkeys(re.findall(r"^\|\s*(\d+)\s+\S+\s*\|\s*[A-Za-z]+\s*\|", text, re.M)))


def side_by_side(every: List[List[str]]) -> List[str]:
    """Return what several commands print."""
    said = [""] * len(every)

    def run(number: int) -> None:
        said[number] = printed(every[number])

    in_threads(len(every), run)
    return said


def printed(argv: List[str]) -> str:
    """Return what a command prints, "" where it is missing, fails or does not end."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20)
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "replace")
    return ""


# The processor and its memory.


def idle() -> float:
    """Return for how many seconds the machine's cores have been idle, all together."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = read("/proc/stat").split("\n", 1)[0].split()
        return (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def hashing() -> Callable[[], float]:
    """Return a step of integer work in registers; it returns how many rounds it did."""

    def step() -> float:
        hashlib.pbkdf2_hmac("sha256", b"jobctl", b"fitness", ROUNDS)
        return ROUNDS / 1e6

    return step


def copying() -> Callable[[], float]:
    """Return a step that copies memory; it returns how many gigabytes it copied."""
    source, target = memoryview(os.urandom(1 << 16) * (BUFFER >> 16)), memoryview(bytearray(BUFFER))

    def step() -> float:
        target[:] = source
        if target[-1] != source[-1]:
            raise ValueError("copied memory differs")
        return BUFFER / 1e9

    return step


def work(make: Callable[[], Callable[[], float]], begin: float, seconds: float) -> Json:
    """Do steps for so long, from a time on; return what was done, and what it took."""
    step = make()
    step()  # before the clock runs: memory is touched then
    time.sleep(max(0.0, begin - time.monotonic()))
    still, wall, cpu, done = idle(), time.monotonic(), time.process_time(), 0.0
    while time.monotonic() - wall < seconds:
        done += step()
    return {
        "work": done,
        "wall": time.monotonic() - wall,
        "cpu": time.process_time() - cpu,
        "idle": idle() - still,
    }


def in_parallel(count: int, task: Callable[[float], Json]) -> List[Json]:
    """Do a task in so many processes at the same time; return what each of them returned."""
    begin = time.monotonic() + 0.02 + 0.002 * count
    children = []
    for _ in range(count):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(writer, json.dumps(task(begin)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        children.append((pid, reader))
    said = []
    for pid, reader in children:
        with os.fdopen(reader, "rb") as pipe:
            said.append(pipe.read())
        os.waitpid(pid, 0)
    return [json.loads(one) for one in said if one]


def sample(make: Callable[[], Callable[[], float]], count: int, seconds: float) -> Json:
    """Return what so many processes did together in a window of time."""
    parts = in_parallel(count, lambda begin: work(make, begin, seconds))
    if len(parts) < count:
        raise RuntimeError("%d of %d processes ended early" % (count - len(parts), count))
    return {
        "work": sum(part["work"] for part in parts),
        "wall": sum(part["wall"] for part in parts) / count,
        "cpu": sum(part["cpu"] for part in parts),
        "idle": min(part["idle"] for part in parts),
        "workers": count,
        "cores": min(cores(), float(count)),
    }


def compute(task: Json) -> Json:
    """Measure all cores of the host together, and compute something whose result is known."""
    digest = hashlib.pbkdf2_hmac("sha256", b"jobctl", b"fitness", ROUNDS).hex()
    return {"digest": digest, "sample": sample(hashing, workers(), task["seconds"])}


def memory(task: Json) -> Json:
    """Measure how fast the host copies memory, with several cores together."""
    return {"sample": sample(copying, min(COPIERS, workers()), task["seconds"])}


# Storage.


def storage(task: Json) -> Json:
    """Write a file of at most so many bytes for at most so many seconds, but of `least` bytes; read it, and remove it."""
    directory = task["directory"]
    while not os.path.isdir(directory):  # a host that has had no job yet has no work directory
        directory = os.path.dirname(directory)
    path = os.path.join(directory, ".jobctl-fitness-" + task["name"])
    piece, written, wrong = os.urandom(PIECE), 0, False
    begin, still = time.monotonic(), waited()
    try:
        with open(path, "wb", buffering=0) as file:
            while written < task["bytes"] and (written < task["least"] or time.monotonic() - begin < task["seconds"]):
                rest = memoryview(piece)
                while rest:  # a disk that is nearly full takes a part, and tells why at the next one
                    rest = rest[file.write(rest) :]
                os.fdatasync(file.fileno())
                written += PIECE
            write, write_waited = time.monotonic() - begin, waited() - still
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        begin, still = time.monotonic(), waited()
        with open(path, "rb", buffering=0) as file:
            for _ in range(written // PIECE):
                wrong = file.read(PIECE) != piece or wrong
        return {
            "bytes": written,
            "wrong": wrong,
            "write_seconds": write,
            "write_waited": write_waited,
            "read_seconds": time.monotonic() - begin,
            "read_waited": waited() - still,
        }
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


# Programs in the words of the job's framework.


def devices(task: Json) -> Json:
    """Measure devices with a program that comes with the task: it stays here, with what it has imported."""
    if task["program"] not in PROGRAMS:
        found: Json = {"__name__": "devices"}
        exec(compile(task["program"], "devices", "exec"), found)  # it is jobctl's own, as this one is
        PROGRAMS[task["program"]] = found
    measured: Json = PROGRAMS[task["program"]]["measure"](task)
    return measured


def ranks(task: Json) -> Json:
    """Run a program as some ranks of a job, one process each; return what each has printed, or why it has nothing."""
    said: List[Json] = [{} for _ in task["inputs"]]
    chosen = task.get("interface")
    name = interface(chosen, task.get("address"))
    told = {variable: name for variable in task["interface_env"] if name}
    environ = {**os.environ, **told} if chosen else {**told, **os.environ}

    def run(number: int) -> None:
        child = subprocess.Popen(
            [sys.executable, "-u", "-c", task["program"]],  # unbuffered, so that the last line is what it said last
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
        )
        try:
            printed, _ = child.communicate(json.dumps(task["inputs"][number]).encode(), task["seconds"])
        except subprocess.TimeoutExpired:
            child.kill()
            printed, _ = child.communicate()
            printed += b"\nit did not end within %d s" % task["seconds"]
        said[number] = last(printed.decode("utf-8", "replace"))

    in_threads(len(said), run)
    return {"ranks": said}


def last(printed: str) -> Json:
    """Return the JSON object with a sum that a program has printed, or why there is none: an image may print others."""
    for line in printed.splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict) and "sum" in found:
                return found
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return {"error": lines[-1][-300:] if lines else "it said nothing"}


TASKS: Dict[str, Callable[[Json], Json]] = {
    "inventory": inventory,
    "compute": compute,
    "memory": memory,
    "storage": storage,
    "devices": devices,
    "ranks": ranks,
    **NETWORK_TASKS,
}


def main() -> None:
    """Do tasks until there are no more."""
    for line in iter(sys.stdin.readline, ""):
        task: Json = json.loads(line)
        signal.alarm(SILENCE + int(task.get("patience", 0)))
        try:
            said = TASKS[task["do"]](task)
        except Exception as error:
            said = {"error": "%s: %s" % (type(error).__name__, error)}
        sys.stdout.write(json.dumps({**said, "token": sys.argv[1]}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
