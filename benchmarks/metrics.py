"""What it costs to sample many hosts: processor time and memory of `jobctl metrics --listen`, which is asked again and again.

    sudo python benchmarks/metrics.py [--hosts 64] [--devices 8] [--every 15] [--scrapes 8]

Needs root: the hosts are addresses of one sshd (tests/fleet/light.py) with stubs for docker and nvidia-smi. SSH, the script that
samples a host and the page are real; the launchers are played (benchmarks/supervise.py).
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from benchmarks.hosts import Bench
from benchmarks.supervise import playing
from tests.fleet.light import LightFleet, light_fleet

DEVICE = "{}, NVIDIA H100 80GB HBM3, 97, 71234, 81559, 612.34, 58, 0, 0"


def lend_devices(light: LightFleet, devices: int) -> None:
    """Have all hosts answer as the driver of so many devices does."""
    lines = "\n".join(DEVICE.format(number) for number in range(devices))
    tool = light.dir / "bin" / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    tool.chmod(0o755)


def free_port() -> int:
    """Return a port of this machine at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def scraped(url: str) -> tuple[float, str]:
    """Ask for the page, for a minute until somebody listens; return how many seconds that took, and the page."""
    for _ in range(600):
        began = time.monotonic()
        try:
            with urlopen(url, timeout=60) as answer:
                return time.monotonic() - began, answer.read().decode()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at {url}")


def main() -> int:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two scrapes")
    parser.add_argument("--scrapes", type=int, default=8)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="jobctl-bench-") as scratch, light_fleet(options.hosts) as light:
        lend_devices(light, options.devices)
        light.hosts_file(Path(scratch) / "hosts.txt")
        bench = Bench(Path(scratch), light.ssh_config, [f"l{n}" for n in range(1, options.hosts + 1)], "stub:1")
        bench.up()
        works = [path.parents[1] for path in sorted(light.home.glob(".jobctl/*/bench/run/control.json"))]
        address = f"127.0.0.1:{free_port()}"
        argv = [sys.executable, "-m", "jobctl", "metrics", "--listen", address]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen(argv, cwd=bench.directory, env=bench.environ, **quiet)
        with playing(works):
            first, page = scraped(f"http://{address}/metrics")
            process, times = psutil.Process(server.pid), []
            before, began = process.cpu_times(), time.monotonic()
            for _ in range(options.scrapes):
                time.sleep(options.every)
                seconds, page = scraped(f"http://{address}/metrics")
                times.append(seconds)
            after, passed = process.cpu_times(), time.monotonic() - began
            used = after.user + after.system - before.user - before.system
            devices = page.count("\njobctl_device_utilization_ratio{")
            print(
                f"{options.hosts} hosts, {devices} devices, a scrape every {options.every:g} s: {100 * used / passed:.1f} % "
                f"of a core, {1000 * used / options.scrapes:.0f} ms for each; answered within {max(times):.2f} s "
                f"(the first time {first:.2f} s); {process.memory_info().rss / 2**20:.0f} MB"
            )
        server.terminate()
        server.wait()
        bench.clean()
    return 0


if __name__ == "__main__":
    sys.exit(main())
