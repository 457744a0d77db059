"""A command that has the terminal until it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from jobctl.jobspec.deploy.model.errors import CannotRun, DeployError
from jobctl.jobspec.deploy.transport.descriptors import restore
from jobctl.jobspec.launcher.system.processes import die_with_parent


def run_in_foreground(argv: Sequence[str], environ: Mapping[str, str], directory: str | None) -> int:
    """Run `argv` and return its exit code (128 + n where signal n ended it). Raises CannotRun, or DeployError without `directory`.

    Ctrl-C is for the command: it is not taken here. SIGTERM and SIGHUP are passed on, and it dies with this process.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_PASSED_ON)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with subprocess.Popen(argv, env=dict(environ), cwd=directory, preexec_fn=_as_command) as child:
            for number in _PASSED_ON:
                signal.signal(number, lambda received, frame: child.send_signal(received))
            code = child.wait()
    except OSError as error:
        if directory is not None and not os.path.isdir(directory):
            raise DeployError(f"{directory}: there is no such directory") from error
        if isinstance(error, FileNotFoundError):
            raise CannotRun(f"{argv[0]}: not found on the node's PATH", 127) from error
        raise CannotRun(f"{argv[0]}: {error.strerror}", 126) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


def _as_command() -> None:
    """Take Ctrl-C, and end with jobctl if that is killed (runs between fork and exec)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()
    restore()
