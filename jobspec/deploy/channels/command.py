"""A command that is told on its stdin."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from jobctl.jobspec.deploy.model.notification import DeliveryResult, Notification
from jobctl.jobspec.deploy.transport.descriptors import for_child

TIMEOUT = 60.0  # seconds that a command gets


def run(how: dict[str, Any], message: Notification) -> DeliveryResult:
    """Run the command with the message as JSON on its stdin; it has taken the message if it exits with 0."""
    argv = [str(word) for word in how.get("argv", ())]
    directory = str(how.get("directory") or "/")
    told = {"JOBCTL_JOB": message.job, "JOBCTL_NOTIFY_EVENT": message.event, "JOBCTL_NOTIFY_ID": message.id}
    body = json.dumps(message.to_json(), ensure_ascii=False).encode(errors="replace")
    try:
        done = subprocess.run(
            argv,
            input=body,
            env={**os.environ, **told},
            cwd=directory if os.path.isdir(directory) else "/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
            preexec_fn=for_child(),
        )
    except subprocess.TimeoutExpired:
        return DeliveryResult(f"`{argv[0]}` did not end within {TIMEOUT:g} s")
    except OSError as error:
        return DeliveryResult(f"cannot run `{argv[0]}`: {error.strerror}")
    return (
        DeliveryResult(answer=f"`{argv[0]}` ended with code 0")
        if done.returncode == 0
        else DeliveryResult(f"`{argv[0]}` ended with code {done.returncode}", True)
    )
