"""A command that has the terminal until it ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence

from jobctl.jobspec.deploy.errors import DeployError


def run_in_foreground(argv: Sequence[str], environ: Mapping[str, str], directory: str | None) -> int:
    """Run `argv` and return its exit code (128 + n where signal n ended it). Raises DeployError if it cannot start.

    Ctrl-C is for the command: it is not taken here.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = subprocess.run(
            argv, env=dict(environ), cwd=directory, check=False, preexec_fn=_take_interrupts
        ).returncode
    except FileNotFoundError as error:
        raise DeployError(f"{argv[0]}: not found on the node's PATH") from error
    except (PermissionError, OSError) as error:
        raise DeployError(f"{argv[0]}: {error.strerror}") from error
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _take_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
