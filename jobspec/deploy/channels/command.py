"""A command that is told on its stdin."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
from typing import Any

from jobctl.jobspec.deploy.model.notification import DeliveryResult, Notification
from jobctl.jobspec.deploy.transport.descriptors import restore
from jobctl.jobspec.launcher.system.processes import descendants, die_with_parent, start_ticks

TIMEOUT = 60.0  # seconds that a command gets
_running: set[subprocess.Popen[bytes]] = set()


def run(how: dict[str, Any], message: Notification) -> DeliveryResult:
    """Run the command with the message as JSON on its stdin; it has taken the message if it exits with 0."""
    argv = [str(word) for word in how.get("argv", ())]
    directory = str(how.get("directory") or "/")
    told = {"JOBCTL_JOB": message.job, "JOBCTL_NOTIFY_EVENT": message.event, "JOBCTL_NOTIFY_ID": message.id}
    body = json.dumps(message.to_json(), ensure_ascii=False).encode(errors="replace")
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            env={**os.environ, **told},
            cwd=directory if os.path.isdir(directory) else "/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_as_command,
        )
    except OSError as error:
        return DeliveryResult(f"cannot run `{argv[0]}`: {error.strerror}")
    if not _has_ended(process, body):
        return DeliveryResult(f"`{argv[0]}` did not end within {TIMEOUT:g} s")
    return (
        DeliveryResult(answer=f"`{argv[0]}` ended with code 0")
        if process.returncode == 0
        else DeliveryResult(f"`{argv[0]}` ended with code {process.returncode}", True)
    )


def _as_command() -> None:
    """Begin with the limits of jobctl's own beginning, and end if this process is killed (runs between fork and exec)."""
    restore()
    die_with_parent()


def _has_ended(process: subprocess.Popen[bytes], body: bytes) -> bool:
    """Give a command the message, and wait until it has ended; say whether it did that by itself."""
    _running.add(process)
    with process:
        try:
            process.communicate(body, TIMEOUT)
        except subprocess.TimeoutExpired:
            _kill(process)
            return False
        finally:
            _running.discard(process)
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a command that has not ended, and what it waits for: often it is a shell, and that a program that hangs."""
    below = descendants(process.pid)
    process.kill()
    for pid, ticks in below.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if start_ticks(pid) == ticks:
                os.kill(pid, signal.SIGKILL)


@atexit.register
def _kill_all() -> None:
    """Leave no command behind that nobody would end."""
    for process in list(_running):
        if process.poll() is None:
            _kill(process)
