"""Starts an example's script as servers and trainers on this machine, by the variables that Paddle's roles go by."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.tools.frameworks import python_of
from tests.tools.ports import free_ports

from .paddlelaunch import EXAMPLES, LINES, PATIENCE, environ


class Roles:
    """One server and two trainers; `folder` gets what each of them prints, and its progress."""

    def __init__(self, stack: ExitStack, folder: Path, script: str, args: tuple[str, ...], **variables: str) -> None:
        self.argv, self.folder, self.stack = [str(python_of("paddle-ps")), str(EXAMPLES / script), *args], folder, stack
        self.work = folder / "work"  # where they run
        self.work.mkdir()
        server, *trainers = free_ports(3)
        self.common = {
            "POD_IP": "127.0.0.1",
            "PADDLE_WITH_GLOO": "0",
            "PADDLE_PSERVERS_IP_PORT_LIST": f"127.0.0.1:{server}",
            "PADDLE_TRAINER_ENDPOINTS": ",".join(f"127.0.0.1:{port}" for port in trainers),
            "PADDLE_TRAINERS_NUM": "2",
            **variables,
        }
        self.server = self.start("server", TRAINING_ROLE="PSERVER", PADDLE_PORT=str(server))
        self.wait_for(server)
        self.trainers = [
            self.start(f"trainer-{i}", TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID=str(i), PADDLE_PORT=str(port))
            for i, port in enumerate(trainers)
        ]

    def start(self, name: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a process, which the end of the test ends."""
        log = self.stack.enter_context((self.folder / f"{name}.log").open("wb"))
        env = environ(**self.common, **variables, JOBCTL_PROGRESS_FILE=str(self.folder / f"{name}.progress"))
        process = subprocess.Popen(self.argv, env=env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def wait_for(self, port: int) -> None:
        """Wait until the server answers: Paddle's trainers don't."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                assert self.server.poll() is None, self.log("server")
                assert time.monotonic() < deadline, self.log("server")
                time.sleep(0.1)

    def log(self, name: str) -> str:
        """What a process has printed so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def lines(self) -> list[str]:
        """What trainer 0 has printed so far, without what Paddle prints."""
        return [line for line in self.log("trainer-0").splitlines() if LINES.fullmatch(line)]

    def wait_for_line(self, beginning: str) -> None:
        """Wait until trainer 0 has printed it."""
        deadline = time.monotonic() + PATIENCE
        while not any(line.startswith(beginning) for line in self.lines()):
            assert self.trainers[0].poll() is None, self.log("trainer-0")
            assert time.monotonic() < deadline, self.log("trainer-0")
            time.sleep(0.05)

    def stuck(self) -> bool:
        """Whether Paddle's barrier held them for ever, as it does in one start of mode geo out of fifteen or so."""
        deadline = time.monotonic() + PATIENCE
        while not self.lines():
            assert time.monotonic() < deadline, self.log("trainer-0")
            if any(trainer.poll() is not None for trainer in self.trainers):
                return any("\nTimeout (" in self.log(f"trainer-{i}") for i in (0, 1))
            time.sleep(0.1)
        return False

    def codes(self) -> list[int]:
        """The trainers' exit codes, once they have ended."""
        return [trainer.wait(PATIENCE) for trainer in self.trainers]


@contextmanager
def roles(folder: Path, script: str, *args: str, **variables: str) -> Iterator[Roles]:
    """Start them all for the length of the block; anew, like jobctl, if they were stuck before the first step."""
    for attempt in range(4):
        (folder / str(attempt)).mkdir(parents=True)
        with ExitStack() as stack:
            job = Roles(stack, folder / str(attempt), script, args, **variables)
            if not job.stuck():
                yield job
                return
    raise AssertionError("stuck in every attempt")
