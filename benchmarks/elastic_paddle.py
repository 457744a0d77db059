"""How long an elastic job of PaddlePaddle on three hosts, with a managed etcd, takes to go on with as many nodes as there are.

    sudo python benchmarks/elastic_paddle.py [--runs 3]

Needs root: hosts are network namespaces of this machine (tests/fleet), which share its cores. Who takes part is Paddle's own matter:
a node is left out when its key in etcd has lived for 10 s, and then Paddle waits `elastic_timeout` (here 10 s) for others.
Times are from what happens to the first step of processes that have begun after it, and are as many as said. Prints medians.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.fleet import fleet
from tests.fleet.frameworks.test_paddle import ELASTIC, Elastic
from tests.tools.frameworks import python_of
from tests.tools.paddlescripts import COLLECTIVE
from tests.tools.waiting import eventually

# Beside its step and loss, each checkpoint tells how many ranks there are and when this one began.
SCRIPT = "import time\nbegan = time.time()\n" + COLLECTIVE.replace(
    '"%d %s" % (step, loss.hex())', '"%d %s %d %r" % (step, loss.hex(), world, began)'
)


class Timed(Elastic):
    """A job that tells when it goes on."""

    def resumes(self, count: int, since: float) -> float:
        """Wait for a step of `count` ranks that began after `since`; return how many seconds that took."""

        def look() -> float:
            words = (self.checkpoints / "state").read_text().split()
            return time.time() - since if int(words[2]) == count and float(words[3]) > since else 0.0

        return eventually(look, 300)


def is_past(job: Timed, generation: int) -> bool:
    """Say whether the job has left a generation."""
    return bool(job.status()["generation"] > generation)


def main() -> None:
    """Measure, and print a line for each thing that happens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    packages = python_of("paddle").parents[1] / "lib" / "python3.11" / "site-packages"
    with fleet(3, numbers=(1, 10, 11), lends={"paddle": packages}) as made, TemporaryDirectory() as directory:
        job = Timed(Path(directory) / "job", made, "elastic", "paddle", SCRIPT, ELASTIC)
        spec = job.code / "job.yaml"
        text = spec.read_text().replace("nodes: 3", 'nodes: "2:3"').replace("max_restarts: 9", "max_restarts: 1000")
        spec.write_text(text.replace("host_timeout: 5s", "host_timeout: 10s"))
        began = time.time()
        up = job.up("--skip-check")
        if up.returncode:
            sys.exit(up.stderr)
        eventually(lambda: (job.checkpoints / "state").exists(), 180)
        print(f"up: first step of 3 after {job.resumes(3, began):.1f} s", flush=True)
        found: dict[str, list[float]] = {}

        def measure(what: str, count: int, act: Callable[[], object]) -> None:
            since = time.time()
            act()
            seconds = job.resumes(count, since)
            print(f"  {what}: {count} go on after {seconds:.1f} s", flush=True)
            found.setdefault(what, []).append(seconds)
            job.goes_on(count, int((job.checkpoints / "state").read_text().split()[0]))

        for turn in range(runs):
            away = made.hosts[1 + turn % 2]
            node = next(n["node"] for n in job.status()["nodes"] if n["host"] == away.name and n["role"] == "trainer")
            measure("container killed", 3, partial(away.docker, "kill", f"jobctl-elastic-{node}"))
            before = job.status()["generation"]
            measure("host cut off for good", 2, away.pull_cable)
            eventually(partial(is_past, job, before))
            measure("host given back", 3, away.plug_cable)
        for what, seconds in found.items():
            print(f"{what}: {median(seconds):.1f} s")
        job.down()


if __name__ == "__main__":
    main()
