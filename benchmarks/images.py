"""What an image costs that many hosts lack: `prepare`, on which hosts hand it on, against two other ways.

    sudo python benchmarks/images.py [--hosts 1 4 8] [--size 100] [--base 0] [--rate 100mbit] [--engine docker]

One is `docker save | ssh docker load` in a loop, the other a registry on this machine, which all hosts pull from at the same time.

Needs root: hosts are network namespaces of this machine (tests/fleet). Each link, also that of this machine, carries `--rate` in each
direction. The image has one layer of `--size` MB that cannot be compressed, and with `--base` one below it, which all hosts have
already. The engine of a further host plays that of this machine. `--engine loading` is for many hosts: their engines hash what they
load and unpack nothing (tests/fleet/loading.py), and the registry is a file that they fetch by HTTP.

For each way it prints seconds, how many times the seconds of the first count of hosts that is, and how many times what is missing on
a host has left this machine; then how busy the cores were while jobctl worked. Where that is near 100 %, they are the limit, and not
the links. Exits 1 if jobctl lets more than 1.02 of it leave this machine, and 25 kB for each host (sshd, the program that hands on),
or takes more than 1.5 times as long for up to 16 hosts as for the first count (with `--base` 1.3 times), or twice as long for more.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.host import Host, wait
from tests.fleet.loading import Archive, LoadingFleet, layer, loading
from tests.fleet.machine import sh
from tests.fleet.podman import ENGINES

NAME, BASE = "jobctl-bench:1", "jobctl-bench-base:1"
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
MAX_BYTES, PER_HOST = 1.02, 25_000  # times what is missing that may leave this machine, and bytes for each host
MANY, MAX_TIME, MAX_TIME_CHANGED, MAX_TIME_MANY = (
    16,
    1.5,
    1.3,
    2.0,
)  # times the time for the first count of hosts: for up to so many, the same for a changed layer, and for more


class Bench:
    """A fleet whose first host's engine plays that of this machine, and three ways to bring its image to the others."""

    def __init__(self, folder: Path, made: Fleet, size: int, base: int) -> None:
        self.folder, self.fleet, self.size = folder, made, size
        self.engine, self.hosts = made.hosts[0], made.hosts[1:]
        self.first: dict[str, float] = {}  # seconds of each way for the first count of hosts
        (folder / "job.yaml").write_text(SPEC)
        below = [layer(folder / "base", base * 1_000_000)] if base else []
        self.image = Archive(folder, NAME, [*below, layer(folder / "changed", size * 1_000_000)])
        self.base = Archive(folder, BASE, below) if base else None

    def load(self) -> None:
        """Give this machine's engine the image, and all hosts what is below the layer that changed."""
        self.engine.docker("load", "--input", str(self.image.path))
        for host in self.hosts if self.base is not None else ():
            assert self.base is not None
            host.docker("load", "--input", str(self.base.path))

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
        (self.folder / f"told-{count}").write_text(done.stderr)
        if done.returncode:
            sys.exit(done.stderr)

    def loop(self, count: int) -> None:
        """Bring the image to so many hosts, one after the other, with OpenSSH."""
        save = f"docker -H unix://{self.engine.socket} save {NAME}"
        lines = [f"{save} | ssh -F {self.fleet.ssh_config} {host.name} docker load" for host in self.hosts[:count]]
        subprocess.run(["sh", "-ec", "\n".join(lines)], check=True, stdout=subprocess.DEVNULL)

    def pull(self, count: int) -> None:
        """Have so many hosts pull the image from the registry, all at the same time."""
        pulls = [subprocess.Popen(self.pulling(host), stdout=subprocess.DEVNULL) for host in self.hosts[:count]]
        if any(pull.wait() for pull in pulls):
            sys.exit("a host could not pull the image from the registry")

    def pulling(self, host: Host) -> list[str]:
        """Return the command by which a host pulls it."""
        return ["docker", "-H", f"unix://{host.socket}", "pull", "-q", self.pulled]

    @property
    def address(self) -> tuple[str, int]:
        """Where the registry listens."""
        return f"10.{self.fleet.network}.0.254", PORT

    @property
    def pulled(self) -> str:
        """What the image is called in the registry."""
        return f"{self.address[0]}:{PORT}/{NAME}"

    @contextmanager
    def registry(self) -> Iterator[None]:
        """Have a registry on this machine that has the image."""
        config = self.folder / "registry.yml"
        config.write_text(REGISTRY.format(store=self.folder / "store", address=self.pulled.partition("/")[0]))
        server = subprocess.Popen(
            ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self.engine.docker("tag", NAME, self.pulled)
            wait(lambda: server.poll() is None and self.listens(), 60, lambda: "the registry does not listen")
            self.engine.docker("push", "--quiet", self.pulled)
            yield
        finally:
            server.terminate()
            server.wait(60)

    def listens(self) -> bool:
        """Say whether the registry does."""
        with suppress(OSError), socket.create_connection(self.address, 1):
            return True
        return False

    def measure(self, bring: Callable[[int], None], count: int) -> tuple[float, int]:
        """Return the seconds that it takes, and the bytes that have left this machine; every host has the image then."""
        before, began = self.sent(), time.monotonic()
        bring(count)
        seconds, sent = time.monotonic() - began, self.sent() - before
        for host in self.hosts[:count]:
            self.remove(host, self.pulled if bring == self.pull else NAME)
        return seconds, sent

    def remove(self, host: Host, image: str) -> None:
        """Remove an image that a host has."""
        host.docker("rmi", image)

    def sent(self) -> int:
        """Return how many bytes have left this machine for the fleet."""
        return int(Path(f"/sys/class/net/{self.fleet.bridge}/statistics/tx_bytes").read_text())


class LoadingBench(Bench):
    """The same with engines that unpack nothing. What they pull is the file of the changed layer."""

    def pulling(self, host: Host) -> list[str]:
        """Return the command by which a host fetches it, and sees that it is whole."""
        url = f"http://{self.address[0]}:{PORT}/changed"
        get = f"import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen('{url}').read())"
        program = f'test "$("$0" -S -c "$1" | sha256sum)" = "$(sha256sum < {self.folder}/changed)"'
        return ["nsenter", f"--net=/run/netns/{host.namespace}", "sh", "-c", program, sys.executable, get]

    @contextmanager
    def registry(self) -> Iterator[None]:
        """Serve the layer by HTTP."""
        handler = functools.partial(_Silent, directory=str(self.folder))
        with http.server.ThreadingHTTPServer(self.address, handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield
            finally:
                server.shutdown()

    def remove(self, host: Host, image: str) -> None:
        """Remove an image, unless it is one that was only fetched."""
        if image == NAME:
            super().remove(host, image)


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def open_to_registry(kind: type[Host]) -> type[Host]:
    """Return hosts whose engines pull from a registry of the fleet's networks without TLS."""

    class Open(kind):  # type: ignore[valid-type, misc]
        def start_engine(self, *more: str) -> None:
            super().start_engine("--insecure-registry", "10.0.0.0/8", *more)

    return Open


@contextmanager
def bench(count: int, engine: str, size: int, base: int) -> Iterator[Bench]:
    """Have a bench of so many hosts."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="jobctl-bench-")))
        if engine == "loading":
            made = stack.enter_context(fleet(count + 1, LoadingFleet, engines=False))
            one: Bench = LoadingBench(scratch, made, size, base)
            first, *_ = stack.enter_context(loading([host.socket for host in made.hosts]))
            first.has(one.image)
        else:
            of = type("Open", (ENGINES[engine],), {"kind": open_to_registry(ENGINES[engine].kind)})
            one = Bench(scratch, stack.enter_context(fleet(count + 1, of)), size, base)
        one.load()
        stack.enter_context(one.registry())
        yield one


def main() -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--size", type=int, default=100, help="of what hosts lack of the image, in MB")
    parser.add_argument("--base", type=int, default=0, help="of what they have of it, in MB")
    parser.add_argument("--rate", default="100mbit", help="of each link, as tc takes it")
    parser.add_argument("--engine", choices=("docker", "docker26", "containerd", "loading"), default="docker")
    parser.add_argument("--others", type=int, default=64, help="up to so many hosts the other ways are measured")
    options = parser.parse_args()
    with bench(max(options.hosts), options.engine, options.size, options.base) as one:
        one.shape(options.rate)
        print(f"{options.size} MB above {options.base}, links of {options.rate}, {options.engine}", flush=True)
        good = [row(one, count, others=count <= options.others) for count in options.hosts]
        return 0 if all(good) else 1


def row(one: Bench, count: int, *, others: bool) -> bool:
    """Print the figures of so many hosts; say whether those of jobctl are within limits."""
    ways = {"jobctl": one.jobctl, **({"loop": one.loop, "registry": one.pull} if others else {})}
    line, good, missing = f"{count:3} hosts", False, one.size * 1_000_000
    for name, bring in ways.items():
        busy, all_ = cpu()
        seconds, sent = one.measure(bring, count)
        ratio = seconds / one.first.setdefault(name, seconds)
        line += f"   {name} {seconds:6.1f} s {ratio:5.2f} x {sent / missing:6.3f} sent"
        if name == "jobctl":
            now, all_now = cpu()
            line += f" {100 * (now - busy) / (all_now - all_):3.0f} % busy"
            few = MAX_TIME if one.base is None else MAX_TIME_CHANGED
            is_quick = ratio <= (few if count <= MANY else MAX_TIME_MANY)
            good = is_quick and sent <= MAX_BYTES * missing + count * PER_HOST
    print(line, flush=True)
    return good


def cpu() -> tuple[int, int]:
    """Return how long the cores were busy, and how long they were there, since the boot."""
    times = [int(one) for one in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


if __name__ == "__main__":
    sys.exit(main())
