"""Runs a campaign (campaign.py), and prints what the job has survived.

python -m tests.fleet.campaign --seed 1 --faults 100 [--elastic] [--etcd] [--notify] [--alone] [--framework NAME]
"""

from __future__ import annotations

import argparse
import math
import sys

from tests.fleet.campaign.campaign import JobKind, campaign
from tests.fleet.campaign.training import WORKS
from tests.fleet.podman import ENGINES


def main() -> None:
    """Run a campaign, and print what it survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=math.inf, help="after so many, no further fault begins")
    parser.add_argument("--elastic", action="store_true", help="a job of 1 to 3 nodes without a spare")
    parser.add_argument("--etcd", action="store_true", help="with an etcd of three members on the same hosts")
    parser.add_argument("--notify", action="store_true", help="with a webhook, which must be told of each failure")
    parser.add_argument("--alone", action="store_true", help="the controller is off until the job has ended")
    parser.add_argument(
        "--framework",
        choices=sorted(WORKS),
        default="torch",
        help="what trains; `light` needs no framework, and starts at once; only it and torch can be elastic",
    )
    parser.add_argument("--engine", choices=sorted(ENGINES), default="docker", help="what the hosts have")
    parser.add_argument("--only", default="", metavar="WORD", help="nothing but what has this in its name")
    options = parser.parse_args()
    kind = JobKind(options.framework, options.elastic, options.etcd, options.notify, options.alone, options.engine)
    one = campaign(options.seed, options.faults, kind, only=options.only, minutes=options.minutes)
    for fault, times in sorted(one.faults.items()):
        print(f"{times:4}  {fault}")
    if one.hearing is not None:
        print(one.hearing.line)
    print("\n".join(one.starts.lines()))
    middle = sorted(one.seconds)[len(one.seconds) // 2]
    print(f"{sum(one.faults.values()):4}  survived; ten steps further after {middle:.1f} s (median)", file=sys.stdout)


if __name__ == "__main__":
    main()
