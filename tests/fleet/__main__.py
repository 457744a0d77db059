"""A fleet by hand: `python -m tests.fleet up [N]` holds it until Ctrl-C and says how to reach it.

`python -m tests.fleet down` removes what is left of fleets whose makers were killed.
"""

from __future__ import annotations

import signal
import sys
import time

from tests.fleet.fleet import fleet, sweep
from tests.fleet.machine import missing


def main(argv: list[str]) -> int:
    if argv == ["down"]:
        print(f"removed {sweep()} hosts")
        return 0
    if argv[:1] != ["up"] or len(argv) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    problem = missing()
    if problem:
        print(problem, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin = time.monotonic()
    with fleet(int(argv[1]) if len(argv) > 1 else 3) as made:
        made.hosts_file(made.dir / "hosts.txt")
        print(f"{len(made.hosts)} hosts in {time.monotonic() - begin:.1f} s")
        print(f"  ssh -F {made.ssh_config} h1 docker ps")
        print(f"  jobctl up job.yaml --hosts {made.dir}/hosts.txt --ssh-config {made.ssh_config}")
        print("Ctrl-C removes them.", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("removing …", file=sys.stderr)
    return 0


sys.exit(main(sys.argv[1:]))
