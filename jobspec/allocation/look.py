"""A command on a machine of Slurm's with what a process of the job would have there: for a look around."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.container import ContainerHold
from jobctl.jobspec.allocation.image import JobImage
from jobctl.jobspec.allocation.messages import say
from jobctl.jobspec.launcher.system.files import read_json
from jobctl.jobspec.launcher.system.network import is_scrubbed
from jobctl.jobspec.launcher.system.processes import boot_time, die_with_parent, forward_signal

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from jobctl.jobspec.launcher.system.files import Json
NO_IMAGE = 125  # exit code, as that of `docker run` where there is no container
LIFE = 60.0  # seconds between two signs of life
WAIT = 0.2  # seconds between two looks at an image that is fetched
OF_ENGINES = ("SLURM_STEP_GPUS",)  # what start.sh reads of the task to choose a container's devices; no command gets it


class LookAround:
    """Runs one command, in a directory that is its own and that it removes."""

    def __init__(self, work: str, environ: Dict[str, str]) -> None:
        self.work = work
        self.settings: Json = read_json(os.path.join(work, "slurm.json")) or {}
        host = environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.own = os.path.join(work, "hosts", host, "look-%d" % os.getpid())
        self.environ = {name: environ[name] for name in environ if not is_scrubbed(name, self.settings["scrub"])}
        self.engines = {name: environ[name] for name in OF_ENGINES if name in environ}
        self.child: Optional[subprocess.Popen[bytes]] = None
        self.ended = 0  # the signal by which it was told to end

    def run(self, argv: List[str]) -> int:
        """Run the command until it ends; return its exit code."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self.on_signal)
        os.makedirs(self.own, exist_ok=True)
        threading.Thread(target=self.show_life, daemon=True).start()
        image, hold = JobImage(self.work, self.settings), ContainerHold(self.work, self.own)
        try:
            while not image.is_there(boot_time()):
                if image.problem is not None or self.ended:
                    say(image.problem or "was told to end")
                    return NO_IMAGE
                time.sleep(WAIT)
            if self.settings["checkpoint"]:
                os.makedirs(self.settings["checkpoint"], exist_ok=True)  # containers have it, also before the job began
            hold.take(self.environ)
            return self.start(argv, image.file or "")
        finally:
            image.end()
            if self.settings["container"] != "none":
                hold.remove()
            shutil.rmtree(self.work, ignore_errors=True)

    def start(self, argv: List[str], image: str) -> int:
        """Start the command, in a container if the job has some, and wait for its end."""
        script = ["sh", os.path.join(self.work, "start.sh"), "start", "", "", self.own, image]
        environ = self.environ if self.settings["container"] == "none" else {**self.environ, **self.engines}
        self.child = subprocess.Popen([*script, *argv], env=environ, preexec_fn=die_with_parent)
        if self.ended:
            forward_signal(self.child.pid, self.ended)
        code = self.child.wait()
        return code if code >= 0 else 128 - code

    def show_life(self) -> None:
        """Touch the directory as long as this process is there: once nobody has for an hour, others remove it."""
        while True:
            with contextlib.suppress(OSError):
                os.utime(self.work)
            time.sleep(LIFE)

    def on_signal(self, number: int, frame: Any) -> None:
        """Pass on that it is to end. What a terminal sends, it sends to the command too."""
        if number in (signal.SIGINT, signal.SIGQUIT):
            return
        self.ended = number
        if self.child is not None:
            forward_signal(self.child.pid, number)
