"""One changed line of a job's code, brought to hosts without engines: what `prepare` takes for it."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.fleet import fleet
from tests.fleet.loading import Archive, LoadingFleet, layer, loading

NAME = "jobctl-line:1"
SPEC = f"""\
name: line
framework: torch
image: {NAME}
pull: never
command: [python3, train.py]
per: node
code: .
nodes: 1:64
"""
PLACE = ".jobctl/*/*/code/*/train.py"


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds, seconds of its CPU, and bytes that have left this machine for each host."""

    seconds: float
    cpu: float
    sent: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu:.1f} s of CPU here, {self.sent / 1000:.1f} kB for each host"


class Line:
    """Hosts, and a job with `size` bytes of code in files of 100 kB."""

    def __init__(self, folder: Path, made: LoadingFleet, size: int) -> None:
        self.folder, self.fleet = folder, made
        (folder / "code").mkdir()
        (folder / "code" / "job.yaml").write_text(SPEC)
        for number in range(size // 100_000):
            (folder / "code" / f"part-{number}.bin").write_bytes(os.urandom(100_000))
        self.change("first")
        made.hosts_file(folder / "code" / "hosts.txt")

    def change(self, word: str) -> None:
        """Change one line of a script of a thousand."""
        lines = [f"print({number})\n" for number in range(1000)]
        lines[500] = f"print({word!r})\n"
        (self.folder / "code" / "train.py").write_text("".join(lines))

    def prepare(self) -> Cost:
        """Bring all to the hosts."""
        where = ("--hosts", "hosts.txt", "--ssh-config", str(self.fleet.ssh_config))
        environ = {**os.environ, "JOBCTL_STATE_DIR": str(self.folder / "state"), "HOME": str(self.folder)}
        argv = [sys.executable, "-m", "jobctl", "prepare", *where, "--skip-check"]
        before, used, began = self._sent(), self._cpu(), time.monotonic()
        done = subprocess.run(argv, cwd=self.folder / "code", env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seconds = time.monotonic() - began
        return Cost(seconds, self._cpu() - used, (self._sent() - before) / len(self.fleet.hosts))

    def _sent(self) -> int:
        return int(Path(f"/sys/class/net/{self.fleet.bridge}/statistics/tx_bytes").read_text())

    def _cpu(self) -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def hosts_with(self, word: str) -> int:
        """Return how many hosts have a version of the code in which the line is this one."""
        texts = [[one.read_text() for one in host.home.glob(PLACE)] for host in self.fleet.hosts]
        return sum(any(f"print({word!r})" in text for text in every) for every in texts)


@contextlib.contextmanager
def line(folder: Path, hosts: int, size: int) -> Iterator[Line]:
    """Have so many hosts with the image, and the job."""
    image = Archive(folder, NAME, [layer(folder / "layer", 100_000)])
    with fleet(hosts, LoadingFleet, engines=False) as made, loading([host.socket for host in made.hosts]) as engines:
        for engine in engines:
            engine.has(image)
        assert isinstance(made, LoadingFleet)
        yield Line(folder, made, size)
