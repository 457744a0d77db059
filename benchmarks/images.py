"""What an image costs that many hosts lack: `prepare`, on which hosts hand it on, against `docker save | ssh docker load` in a loop.

    sudo python benchmarks/images.py [--hosts 1 4 8] [--size 100] [--rate 100mbit]

Needs root: hosts are network namespaces of this machine (tests/fleet). Each link, also that of this machine, carries `--rate` in each
direction. The image is one layer of `--size` MB that cannot be compressed; the engine of a further host plays that of this machine.
Exits 1 if more than 1.2 of the image leaves this machine, or if all hosts take more than twice as long as one.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.machine import sh

NAME = "jobctl-bench:1"
SPEC = f"""\
name: bench
framework: torch
image: {NAME}
pull: never
command: [sleep, "1000"]
per: node
nodes: 1:64
"""
MAX_BYTES = 1.2  # images that may leave this machine
MAX_TIME = 2.0  # times the time for one host


class Bench:
    """A fleet whose first host's engine plays that of this machine, and two ways to bring its image to the others."""

    def __init__(self, folder: Path, made: Fleet, size: int) -> None:
        self.folder, self.fleet = folder, made
        self.engine, self.hosts = made.hosts[0], made.hosts[1:]
        (folder / "job.yaml").write_text(SPEC)
        content = os.urandom(1_000_000)
        with tarfile.open(folder / "image.tar", "w") as archive:
            for number in range(size):
                member = tarfile.TarInfo(f"weights-{number}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(os.urandom(len(content))))
        self.engine.docker("import", str(folder / "image.tar"), NAME)

    def shape(self, rate: str) -> None:
        """Let each link carry no more than `rate` in each direction."""
        how = ("root", "tbf", "rate", rate, "burst", "1mbit", "latency", "100ms")
        for device in (self.fleet.bridge, *(host.cable for host in self.hosts)):
            sh("tc", "qdisc", "add", "dev", device, *how)
        for host in self.hosts:
            sh("nsenter", f"--net=/run/netns/{host.namespace}", "tc", "qdisc", "add", "dev", "eth0", *how)

    def jobctl(self, count: int) -> None:
        """Bring the image to so many hosts with jobctl."""
        chosen = self.hosts[:count]
        (self.folder / "hosts.txt").write_text("".join(f"{host.name} addr={host.address}\n" for host in chosen))
        where = ("--hosts", "hosts.txt", "--ssh-config", str(self.fleet.ssh_config))
        environ = {**os.environ, "JOBCTL_STATE_DIR": str(self.folder / "state")}
        environ["DOCKER_HOST"] = f"unix://{self.engine.socket}"
        argv = [sys.executable, "-m", "jobctl", "prepare", *where, "--skip-check"]
        done = subprocess.run(argv, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)

    def loop(self, count: int) -> None:
        """Bring the image to so many hosts, one after the other, with OpenSSH."""
        save = f"docker -H unix://{self.engine.socket} save {NAME}"
        lines = [f"{save} | ssh -F {self.fleet.ssh_config} {host.name} docker load" for host in self.hosts[:count]]
        subprocess.run(["sh", "-ec", "\n".join(lines)], check=True, stdout=subprocess.DEVNULL)

    def measure(self, bring: Callable[[int], None], count: int) -> tuple[float, int]:
        """Return the seconds that it takes, and the bytes that have left this machine; every host has the image then."""
        before, began = self.sent(), time.monotonic()
        bring(count)
        seconds, sent = time.monotonic() - began, self.sent() - before
        for host in self.hosts[:count]:
            host.docker("rmi", NAME)
        return seconds, sent

    def sent(self) -> int:
        """Return how many bytes have left this machine for the fleet."""
        return int(Path(f"/sys/class/net/{self.fleet.bridge}/statistics/tx_bytes").read_text())


def main() -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--size", type=int, default=100, help="of the image, in MB")
    parser.add_argument("--rate", default="100mbit", help="of each link, as tc takes it")
    options = parser.parse_args()
    good = True
    with TemporaryDirectory(prefix="jobctl-bench-") as scratch, fleet(max(options.hosts) + 1) as made:
        bench = Bench(Path(scratch), made, options.size)
        bench.shape(options.rate)
        print(f"{options.size} MB, links of {options.rate}: seconds, and images that left this machine", flush=True)
        one = 0.0
        for count in options.hosts:
            seconds, sent = bench.measure(bench.jobctl, count)
            other, all_sent = bench.measure(bench.loop, count)
            images, others = (part / options.size / 1e6 for part in (sent, all_sent))
            print(
                f"{count:3} hosts  jobctl {seconds:6.1f} s {images:5.2f}  loop {other:6.1f} s {others:5.2f}", flush=True
            )
            one = one or seconds
            good &= images <= MAX_BYTES and seconds <= MAX_TIME * one
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
