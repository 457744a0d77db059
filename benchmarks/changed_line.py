"""What one changed line of the code costs on many hosts.

    sudo python benchmarks/changed_line.py [--hosts 64] [--size 20]

Needs root: hosts are network namespaces of this machine with an sshd and a disk each; engines are played (tests/fleet/loading.py). The
code has `--size` MB. Prints what `jobctl prepare` takes for all of it, for nothing, and for one changed line of a script. Exits 1 if the
line takes more than 10 s, or if 20 kB more than nothing leave this machine for a host.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.files.changed_line import line

MAX_SECONDS, MAX_BYTES = 10.0, 20_000


def main() -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--size", type=int, default=20, help="of the code, in MB")
    options = parser.parse_args()
    with (
        TemporaryDirectory(prefix="jobctl-bench-") as made,
        line(Path(made), options.hosts, options.size * 10**6) as job,
    ):
        print(f"{options.hosts} hosts, {options.size} MB of code: {job.prepare()}", flush=True)
        nothing = job.prepare()
        print(f"nothing has changed: {nothing}", flush=True)
        job.change("second")
        changed = job.prepare()
        print(f"one line has changed: {changed}", flush=True)
        assert job.hosts_with("second") == options.hosts
    return 0 if changed.seconds <= MAX_SECONDS and changed.sent - nothing.sent <= MAX_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
