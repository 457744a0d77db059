"""What an image costs that many hosts lack: `prepare`, on which hosts hand it on, against two other ways.

    sudo python benchmarks/images.py [--hosts 1 4 8] [--size 100] [--rate 100mbit] [--engine docker]

One is `docker save | ssh docker load` in a loop, the other a registry on this machine, which all hosts pull from at the same time.

Needs root: hosts are network namespaces of this machine (tests/fleet). Each link, also that of this machine, carries `--rate` in each
direction. The image is one layer of `--size` MB that cannot be compressed; the engine of a further host plays that of this machine.
For each way it prints seconds, how many times the seconds of the first count of hosts that is, and images that have left this machine.
Exits 1 if jobctl lets more than 1.2 of the image leave this machine, or takes more than 1.5 times as long for up to 16 hosts as for
the first count, or twice as long for more.
"""

from __future__ import annotations

import argparse
import io
import os
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.host import Host, wait
from tests.fleet.machine import sh
from tests.fleet.podman import ENGINES

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
PORT = 5056  # of the registry
REGISTRY = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {store}}}}}
http: {{addr: "{address}"}}
log: {{level: error}}
"""
MAX_BYTES = 1.2  # images that may leave this machine
MANY, MAX_TIME, MAX_TIME_MANY = (
    16,
    1.5,
    2.0,
)  # times the time for the first count of hosts: for up to so many, and for more


class Bench:
    """A fleet whose first host's engine plays that of this machine, and three ways to bring its image to the others."""

    def __init__(self, folder: Path, made: Fleet, size: int) -> None:
        self.folder, self.fleet, self.size = folder, made, size
        self.engine, self.hosts = made.hosts[0], made.hosts[1:]
        self.first: dict[str, float] = {}  # seconds of each way for the first count of hosts
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

    def pull(self, count: int) -> None:
        """Have so many hosts pull the image from the registry, all at the same time."""
        pulls = [
            subprocess.Popen(
                ["docker", "-H", f"unix://{host.socket}", "pull", "-q", self.pulled], stdout=subprocess.DEVNULL
            )
            for host in self.hosts[:count]
        ]
        if any(pull.wait() for pull in pulls):
            sys.exit("a host could not pull the image from the registry")

    @property
    def pulled(self) -> str:
        """What the image is called in the registry."""
        return f"10.{self.fleet.network}.0.254:{PORT}/{NAME}"

    @contextmanager
    def registry(self) -> Iterator[None]:
        """Have a registry on this machine that has the image."""
        address = self.pulled.partition("/")[0]
        config = self.folder / "registry.yml"
        config.write_text(REGISTRY.format(store=self.folder / "store", address=address))
        server = subprocess.Popen(
            ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self.engine.docker("tag", NAME, self.pulled)
            wait(lambda: server.poll() is None and listens(address), 60, lambda: "the registry does not listen")
            self.engine.docker("push", "--quiet", self.pulled)
            yield
        finally:
            server.terminate()
            server.wait(60)

    def measure(self, bring: Callable[[int], None], count: int) -> tuple[float, float]:
        """Return the seconds that it takes, and the images that have left this machine; every host has the image then."""
        before, began = self.sent(), time.monotonic()
        bring(count)
        seconds, sent = time.monotonic() - began, self.sent() - before
        for host in self.hosts[:count]:
            host.docker("rmi", self.pulled if bring == self.pull else NAME)
        return seconds, sent / self.size / 1e6

    def sent(self) -> int:
        """Return how many bytes have left this machine for the fleet."""
        return int(Path(f"/sys/class/net/{self.fleet.bridge}/statistics/tx_bytes").read_text())


def listens(address: str) -> bool:
    """Say whether anybody listens at an address."""
    host, _, port = address.partition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def open_to_registry(kind: type[Host]) -> type[Host]:
    """Return hosts whose engines pull from a registry of the fleet's networks without TLS."""

    class Open(kind):  # type: ignore[valid-type, misc]
        def start_engine(self, *more: str) -> None:
            super().start_engine("--insecure-registry", "10.0.0.0/8", *more)

    return Open


def main() -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--size", type=int, default=100, help="of the image, in MB")
    parser.add_argument("--rate", default="100mbit", help="of each link, as tc takes it")
    parser.add_argument("--engine", choices=("docker", "docker26"), default="docker", help="of all hosts")
    options = parser.parse_args()
    of = type("Open", (ENGINES[options.engine],), {"kind": open_to_registry(ENGINES[options.engine].kind)})
    with TemporaryDirectory(prefix="jobctl-bench-") as scratch, fleet(max(options.hosts) + 1, of) as made:
        bench = Bench(Path(scratch), made, options.size)
        with bench.registry():
            bench.shape(options.rate)
            print(f"{options.size} MB, links of {options.rate}, {options.engine}", flush=True)
            good = [row(bench, count) for count in options.hosts]
            return 0 if all(good) else 1


def row(bench: Bench, count: int) -> bool:
    """Print the figures of so many hosts; say whether those of jobctl are within limits."""
    ways = {"jobctl": bench.jobctl, "loop": bench.loop, "registry": bench.pull}
    line, good = f"{count:3} hosts", False
    for name, bring in ways.items():
        seconds, images = bench.measure(bring, count)
        ratio = seconds / bench.first.setdefault(name, seconds)
        line += f"   {name} {seconds:6.1f} s {ratio:5.2f} x {images:6.2f} images"
        if name == "jobctl":
            good = images <= MAX_BYTES and ratio <= (MAX_TIME if count <= MANY else MAX_TIME_MANY)
    print(line, flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
