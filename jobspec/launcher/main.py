"""The command line."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.node.guard import guard
from jobctl.jobspec.launcher.process.guard import process_guard
from jobctl.jobspec.launcher.process.task import ProcessTask
from jobctl.jobspec.launcher.standby.guard import parked_guard
from jobctl.jobspec.launcher.standby.launcher import parked_launcher
from jobctl.jobspec.launcher.standby.messages import GuardPreparation
from jobctl.jobspec.launcher.telling.host_teller import send_message

if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Be the launcher, or, by the first argument, the guard of one process, or a process of a standby."""
    while (
        os.open(os.devnull, os.O_RDWR) < 2
    ):  # in the place of standard streams that are closed: else files become them
        pass
    if sys.argv[1:2] == ["process"]:
        task = ProcessTask.from_json(json.loads(os.environ.pop("JOBCTL_PROCESS")))
        sys.exit(process_guard(task, dict(os.environ)))
    if sys.argv[1:2] == ["tell"]:
        sys.exit(send_message())
    if sys.argv[1:2] == ["parked"]:
        sys.exit(
            parked_guard(GuardPreparation.from_json(json.loads(os.environ.pop("JOBCTL_STANDBY"))), dict(os.environ))
        )
    if sys.argv[1:2] == ["parked-launcher"]:
        parked_launcher(int(json.loads(os.environ.pop("JOBCTL_STANDBY"))["fd"]))
    import argparse

    parser = argparse.ArgumentParser(description="The shared launcher of jobctl: runs one node of a job.")
    parser.add_argument("--control", required=True, help="the control file; nothing starts before there is one")
    parser.add_argument("--dir", required=True, help="this node's directory: report, logs, progress")
    parser.add_argument(
        "--secrets", help="a 0600 JSON file with the values of secrets, or a folder with a file for each"
    )
    parser.add_argument("--launch", help="a file with what to run; default: what JOBCTL_LAUNCH holds")
    parser.add_argument("--address", help="this node's own address, where launchers agree among themselves")
    parser.add_argument("--names", help="a JSON file that says where the names of other nodes lead; default: resolved")
    parser.add_argument("--own", help="a directory of this machine alone, for the lock, where all see --dir")
    options = parser.parse_args()
    if options.launch:
        with open(options.launch, encoding="utf-8") as file:
            os.environ["JOBCTL_LAUNCH"] = file.read()
    if "JOBCTL_LAUNCH" not in os.environ:
        parser.error("JOBCTL_LAUNCH is not set: it says what to run")
    for name in ("control", "dir", "secrets", "own"):
        value = getattr(options, name)
        setattr(options, name, os.path.abspath(value) if value else None)
    sys.exit(guard(options))


if __name__ == "__main__":
    CODE = sys._getframe().f_code
    main()
