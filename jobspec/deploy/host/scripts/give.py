"""Lets the user of the job's containers write where they have to; the directories stay those of the user who made them.

It runs in a container that has the work directory and the directory of what is the host's own at /at/0 and /at/1. The
arguments are uid and gid. Prints nothing.
"""

import glob
import os
import sys


def share(path: str, folder: int, file: int, gid: int) -> None:
    if not os.path.islink(path):
        os.chown(path, -1, gid)
        os.chmod(path, os.stat(path).st_mode | (folder if os.path.isdir(path) else file))


def main(uid: int, gid: int) -> None:
    for top in [*glob.glob("/at/0/node-*/"), *glob.glob("/at/0/spare/")]:
        share(top.rstrip("/"), 0o2070, 0o060, gid)
    if os.path.isdir("/at/0/run/feeds"):
        share("/at/0/run/feeds", 0o2050, 0, gid)
    for top in ("/at/0/code", "/at/0/outputs"):
        for folder, folders, files in os.walk(top):
            for name in ["", *folders, *files]:
                share(os.path.join(folder, name).rstrip("/"), 0o2070, 0o060, gid)
    for secret in glob.glob("/at/*/secrets/*.json"):
        if not os.path.islink(os.path.dirname(secret)):
            share(os.path.dirname(secret), 0o010, 0, gid)
            os.chown(secret, uid, gid)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
