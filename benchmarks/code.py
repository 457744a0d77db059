"""What a large file in the code costs: time and memory of hashing it and sending it to a host.

    python benchmarks/code.py [--runs 3]

The host is a folder of this machine, so the figures are those of hashing, packing, and of the host's own work. They are
compared with `sha256sum` and two `tar`s in a pipe, and the memory with that of a small code. Exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace

SMALL, LARGE = 1_000_000, 2_000_000_000  # bytes
MAX_MEMORY = 1.3  # times that of the small code
MAX_TIME = 3.0  # times sha256sum and tar
ADDRESSES = 1_500_000 * 1024  # bytes of address space that have to do


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*map(Path, options.measure))))
        return 0
    with TemporaryDirectory(prefix="jobctl-code-") as scratch:
        small, large = (made(Path(scratch) / f"code-{size}", size) for size in (SMALL, LARGE))
        few = [ours(small, Path(scratch) / "host") for _ in range(options.runs)]
        pairs = [
            (ours(large, Path(scratch) / "host"), plain(large, Path(scratch) / "plain")) for _ in range(options.runs)
        ]
    seconds, other = median(one["seconds"] for one, _ in pairs), median(two for _, two in pairs)
    memory, least = median(one["mb"] for one, _ in pairs), median(one["mb"] for one in few)
    print(f"2 GB: {seconds:.1f} s, sha256sum and tar {other:.1f} s, ratio {seconds / other:.1f}")
    print(f"memory: {memory:.0f} MB, with 1 MB of code {least:.0f} MB, ratio {memory / least:.2f}")
    return 0 if seconds / other <= MAX_TIME and memory / least <= MAX_MEMORY else 1


def made(folder: Path, size: int) -> Path:
    """Return a folder that holds a file of `size` bytes that no one can compress."""
    folder.mkdir()
    with (folder / "model.bin").open("wb") as file:
        for start in range(0, size, 1 << 20):
            file.write(os.urandom(min(1 << 20, size - start)))
    return folder


def ours(code: Path, host: Path) -> dict[str, float]:
    """Send the code in a process of its own, which has little address space."""
    argv = [sys.executable, __file__, "--measure", str(code), str(host)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, preexec_fn=limited)
    subprocess.run(["rm", "-rf", str(host)], check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def measure(code: Path, host: Path) -> dict[str, float]:
    """Hash the code and send it; return how long that took, and the most memory."""
    from jobctl.jobspec.deploy.sending.send_code import Package
    from jobctl.jobspec.deploy.store.code import select
    from jobctl.jobspec.deploy.transport.local import LocalTransport
    from jobctl.jobspec.plan.sent import Code

    begun = time.monotonic()
    sent = Code(str(code), "/workspace", (), version="1")
    host_job = SimpleNamespace(work=host, transport=LocalTransport())
    Package(sent, select(sent, "job", (), None).files).send(host_job)  # type: ignore[arg-type]
    seconds = time.monotonic() - begun
    assert (host / "code/1/model.bin").stat().st_size == (code / "model.bin").stat().st_size
    return {"seconds": seconds, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def plain(code: Path, host: Path) -> float:
    """Do the same by hand, and return how long that took."""
    host.mkdir()
    begun = time.monotonic()
    script = 'sha256sum "$1"/model.bin >/dev/null && tar -C "$1" -cf - . | tar -C "$2" -xf -'
    subprocess.run(["sh", "-c", script, "sh", str(code), str(host)], check=True)
    seconds = time.monotonic() - begun
    subprocess.run(["rm", "-rf", str(host)], check=True)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
