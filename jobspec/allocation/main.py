"""The command line: `run` in the batch script, `node` in each task of its step.

`enter` gives a command what a process has, `look` what one would have. With containers also `image`, which fetches their
image, and `inside`, the first process of each.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.container import FirstProcess
from jobctl.jobspec.allocation.coordinator import Coordinator
from jobctl.jobspec.allocation.image import fetch_image
from jobctl.jobspec.allocation.look import LookAround
from jobctl.jobspec.allocation.node_runner import NodeRunner

if TYPE_CHECKING:
    from typing import List, NoReturn


def main() -> NoReturn:
    """Be the coordinator of an allocation, or the runner of one of its nodes."""
    parser = argparse.ArgumentParser(description="jobctl inside an allocation of Slurm.")
    parser.add_argument("part", choices=("run", "node", "enter", "image", "inside", "look"))
    parser.add_argument("--work", required=True, help="the job's directory, which all nodes see")
    parser.add_argument("--port", type=int, default=0, help="where the coordinator hears the node runners")
    parser.add_argument(
        "--address", default=os.environ.get("SLURM_LAUNCH_NODE_IPADDR", ""), help="where the coordinator is"
    )
    parser.add_argument("--pid", type=int, default=0, help="whose environment and folder a command gets (`enter`)")
    parser.add_argument("--own", default="", help="what is this machine's own in that directory (`inside`)")
    parser.add_argument("--environ", default="", help="a file with variables of the command (`inside`)")
    parser.add_argument("--secrets", default="", help="a file with further variables of the command (`inside`)")
    parser.add_argument("--named-devices", action="store_true", help="no devices are there but the job's (`inside`)")
    parser.add_argument("--workdir", default="", help="the folder of the command (`inside`)")
    parser.add_argument("--look", action="store_true", help="a person sits at the terminal (`inside`)")
    own, argv = sys.argv[1:], []
    if "--" in own:  # the command of `enter`, `inside` and `look` follows it
        own, argv = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    if options.part == "enter":
        enter(options.pid, argv)
    if options.part == "image":
        sys.exit(fetch_image(options.work))
    if options.part == "inside":
        sys.exit(FirstProcess(options).run(argv))
    if options.part == "look":
        sys.exit(LookAround(options.work, dict(os.environ)).run(argv))
    sys.exit(Coordinator(options.work).run() if options.part == "run" else NodeRunner(options).run())


def enter(pid: int, argv: List[str]) -> NoReturn:
    """Become a command with the environment and the folder of a process on this machine."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            pairs = [one.partition(b"=") for one in file.read().split(b"\0") if b"=" in one]
        os.chdir("/proc/%d/cwd" % pid)
        os.execvpe(argv[0], argv, {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs})
    except OSError as error:
        sys.stderr.write("%s: %s\n" % (argv[0], error.strerror))
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
