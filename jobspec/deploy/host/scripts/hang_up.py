"""Ends, in a container, the command that has a mark in its environment, as a terminal that is closed does. Prints nothing.

Arguments: the mark, and `group` if what the command has started ends as well, unless that has a process group of its own.
"""

import os
import signal
import sys


def main() -> None:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(os.path.join("/proc", pid, "environ"), "rb") as file:
                marked = sys.argv[1].encode() in file.read().split(b"\0")
            # The command itself was started from outside of the container; what it has left running is not its end.
            with open(os.path.join("/proc", pid, "stat"), "rb") as file:
                parent = file.read().rpartition(b")")[2].split()[1]
            if marked and parent == b"0":
                leads = sys.argv[2:] == ["group"] and os.getpgid(int(pid)) == int(pid)
                (os.killpg if leads else os.kill)(int(pid), signal.SIGHUP)
        except OSError:  # it has ended, or is another user's
            continue


if __name__ == "__main__":
    main()
