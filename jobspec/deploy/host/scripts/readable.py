"""Lets the group of the work directory at /at/0 read what containers have left there for themselves alone. Prints nothing."""

import glob
import os


def share(path: str, gid: int) -> None:
    if not os.path.islink(path):
        os.chown(path, -1, gid)
        os.chmod(path, os.stat(path).st_mode | (0o550 if os.path.isdir(path) else 0o440))


def main() -> None:
    gid = os.stat("/at/0").st_gid
    for pattern in ("node-*/logs", "node-*/processes", "outputs", "code"):
        for top in glob.glob(os.path.join("/at/0", pattern)):
            share(top, gid)
            for folder, folders, files in os.walk(top) if not os.path.islink(top) else ():
                for name in [*folders, *files]:
                    share(os.path.join(folder, name), gid)


if __name__ == "__main__":
    main()
