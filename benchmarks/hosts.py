"""What many hosts cost: `up` and `status` against a plain parallel loop of OpenSSH that does the same.

    sudo python benchmarks/hosts.py [--runs 3]

Needs root: hosts are network namespaces of this machine (tests/fleet). On 8 real ones (sshd and Docker Engine each) both sides start the
same containers; on 64 and 128 light ones (one sshd, a stub for docker) what counts is the fan-out. Check and image transfer are left out.
Each figure is the median of runs that alternate.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.fleet import fleet
from tests.fleet.light import light_fleet
from tests.fleet.machine import IMAGE

SPEC = """\
name: bench
framework: torch
image: {image}
pull: never
command: [sleep, "1000"]
per: node
nodes: {nodes}
stop_grace_period: 0s
resources: {{ulimits: {{memlock: 65536}}}}
"""


class Bench:
    """A job on a fleet, and the ways to bring it up."""

    def __init__(self, directory: Path, config: Path, names: Sequence[str], image: str) -> None:
        self.directory, self.config, self.names = directory, config, names
        (directory / "job.yaml").write_text(SPEC.format(nodes=len(names), image=image))
        self.environ = {**os.environ, "JOBCTL_STATE_DIR": str(directory / "state")}

    def jobctl(self, *args: str) -> None:
        """Run `jobctl`, which must go well."""
        argv = [sys.executable, "-m", "jobctl", *args]
        done = subprocess.run(argv, cwd=self.directory, env=self.environ, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)

    def where(self) -> tuple[str, ...]:
        """The options that name the hosts."""
        return ("--hosts", "hosts.txt", "--ssh-config", str(self.config))

    def up(self) -> None:
        """Bring the job up with jobctl, without a supervisor: the loop leaves none behind either."""
        self.jobctl("up", *self.where(), "--skip-check", "--no-supervise")

    def loop(self, command: str) -> None:
        """Run `command`, in which HOST stands for the host and NUMBER for its node, for all hosts at once."""
        lines = [command.replace("HOST", name).replace("NUMBER", str(i)) for i, name in enumerate(self.names)]
        script = "\n".join(f"( {line} ) >/dev/null 2>&1 &" for line in lines) + "\nwait\n"
        subprocess.run(["sh", "-c", script], cwd=self.directory, check=True)

    def loop_up(self) -> None:
        """Send the same files and start the same containers with OpenSSH."""
        self.loop(
            f"cp rendered/launcher.py rendered/HOST/ && tar -C rendered/HOST -cf - . | ssh -F {self.config} HOST '"
            "set -e; d=~/.jobctl/HOST/bench; mkdir -p $d/run; cd $d; tar -xf -;"
            " mkdir -p node-NUMBER; docker compose -f $d/compose.yaml up -d node-NUMBER'"
        )

    def clean(self) -> None:
        """Remove everything."""
        self.jobctl("down", *self.where())


def timed(what: Callable[[], None]) -> float:
    """Return how many seconds something takes."""
    began = time.monotonic()
    what()
    return time.monotonic() - began


def compare(
    title: str, ours: Callable[[], None], theirs: Callable[[], None], clean: Callable[[], None], runs: int
) -> None:
    """Print the medians of both, and their ratio."""
    mine, other = [], []
    for _ in range(runs):
        mine.append(timed(ours))
        clean()
        other.append(timed(theirs))
        clean()
    print(
        f"{title:40} {median(mine):7.2f} s  {median(other):7.2f} s  {median(mine) / median(other):5.2f} x", flush=True
    )


def main() -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    runs = parser.parse_args().runs
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed jobctl has its bytecode
    print(f"{'':40} {'jobctl':>9}  {'ssh loop':>9}  ratio")
    with TemporaryDirectory(prefix="jobctl-bench-") as scratch, fleet(8) as real:
        real.hosts_file(Path(scratch) / "hosts.txt")
        bench = Bench(Path(scratch), real.ssh_config, [host.name for host in real.hosts], IMAGE)
        _compare_up("up, 8 real hosts", bench, runs)
        print(f"check, 8 real hosts: {timed(lambda: bench.jobctl('check', *bench.where())):.2f} s")
    for size in (64, 128):
        with TemporaryDirectory(prefix="jobctl-bench-") as scratch, light_fleet(size) as light:
            light.hosts_file(Path(scratch) / "hosts.txt")
            bench = Bench(Path(scratch), light.ssh_config, [f"l{n}" for n in range(1, size + 1)], "stub:1")
            _compare_up(f"up, {size} light hosts", bench, runs)
            bench.up()
            ps = f"ssh -F {light.ssh_config} HOST docker ps"
            compare(
                f"status, {size} light hosts",
                partial(bench.jobctl, "status"),
                partial(bench.loop, ps),
                lambda: None,
                runs,
            )
            bench.clean()
    print(f"memory of `up` at most: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MB")
    return 0


def _compare_up(title: str, bench: Bench, runs: int) -> None:
    bench.jobctl("render", "--hosts", "hosts.txt", "--out", "rendered")
    compare(title, bench.up, bench.loop_up, bench.clean, runs)


if __name__ == "__main__":
    sys.exit(main())
