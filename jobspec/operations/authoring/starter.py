"""A spec and a hosts file to start from: valid, commented, and small."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from jobctl.jobspec.deploy.store.login import user_name
from jobctl.jobspec.importers.names import fitted
from jobctl.jobspec.importers.write import scalar
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.user import home
from jobctl.jobspec.spec.frameworks import FRAMEWORKS, FrameworkName, is_framework

_SPEC = """\
# A training job for jobctl: `jobctl validate` checks it, `jobctl up` runs it on this machine,
# `jobctl up --hosts hosts.txt` on real hosts. All keys: `jobctl schema`, docs/spec.md.
name: {name}            # unique on its hosts
framework: {framework}      # {about}
script: train.py        # is beside this file
# args: [--epochs, "10"]
code: .                 # sent to every host; the script runs in it

nodes: 2{elastic}
devices: cpu            # or gpu (all of a host), gpu:8, {{kind: gpu, ids: "0-3"}}
image: registry.example.com/team/train:1.0   # put yours here; of use on real hosts only

checkpoint: {checkpoint}
recovery:
  max_restarts: 3       # after a failure all nodes go on from the last checkpoint
  # hang_timeout: 10m   # needs a script that writes its step to $JOBCTL_PROGRESS_FILE
"""

_HOSTS = """\
# One host per line, as SSH knows it. Not used by `jobctl up` on this machine.
# ml@gpu[01-04]:22  slots=8          # a range; slots: devices on the host
# gpu05 addr=10.0.0.5 devices=0-3    # addr: where the other nodes reach it
# gpu06 spare                        # idle until a node needs a new home
localhost nodes=2                    # this machine, without SSH; takes both nodes
"""


def write_starter(directory: Path, framework: str) -> tuple[Path, ...]:
    """Write job.yaml and hosts.txt into `directory` and return their paths. Never replaces a file."""
    if not is_framework(framework):
        raise Refused(f"unknown framework `{framework}`", f"one of {', '.join(FRAMEWORKS)}")
    files = {directory / "job.yaml": _spec(directory, framework), directory / "hosts.txt": _HOSTS}
    return write_new(files)


def write_new(files: Mapping[Path, str]) -> tuple[Path, ...]:
    """Write all files, or none, and return their paths. Raises Refused if one of them is there already: none is replaced."""
    taken = [str(path) for path in files if path.exists()]
    if taken:
        raise Refused(f"{' and '.join(taken)} already exist{'s' if len(taken) == 1 else ''}", "nothing was written")
    with contextlib.ExitStack() as begun:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_new(path, text, begun)
        begun.pop_all()
    return tuple(files)


def _write_new(path: Path, text: str, begun: contextlib.ExitStack) -> None:
    """Write a file, which `begun` removes. Raises Refused if somebody else has written it meanwhile, and OSError with its path."""
    try:
        with path.open("x", encoding="utf-8") as file:
            begun.callback(path.unlink, missing_ok=True)
            file.write(text)
    except FileExistsError:
        raise Refused(f"{path} already exists", "nothing was written") from None
    except OSError as error:  # of a full disk it does not say where
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from error


def _spec(directory: Path, framework: FrameworkName) -> str:
    name = job_name(directory.resolve().name, user_name())
    checkpoint = (home() or directory.resolve()) / "checkpoints" / name
    traits = FRAMEWORKS[framework]
    elastic = f"{' ' * 16}# {traits.elastic}" if traits.elastic else ""
    written = scalar(str(checkpoint).replace("$", "$$"))
    return _SPEC.format(name=name, framework=framework, about=traits.starts, checkpoint=written, elastic=elastic)


def job_name(directory: str, user: str) -> str:
    """Return a valid job name made of a directory's and a user's name, 40 characters at most.

    A digest stands for a directory of whose name nothing can stay: two of them have different jobs.
    """
    if directory and not fitted(directory):
        directory = f"job-{sha256(os.fsencode(directory)).hexdigest()[:8]}"
    return fitted(f"{directory[: max(20, 35 - len(user))]}-{user}") or "job"
