"""What makes a host unfit, made for real: control groups for cores and disks, `tc` and `iptables` for links, a changed probe.

Hosts of a fleet share this machine, so links are bounded, healthy ones too: by what the machine carries even while
others use it. Otherwise other work on this machine would limit a link.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.host import Host
from tests.fleet.machine import sh

RATE, HALF, BURST = "100mbit", "50mbit", "16kb"  # of a healthy link, and of one at half speed
AS_MADE = 65535  # packets that a host sends in one
SLOW = 25  # MB/s of a slow disk; others write and read several hundred, as fast as this machine does
# Takes the place of `docker` on a host, and changes what it is to run.
WRAPPER = """\
#!/usr/bin/env python3
import os, sys
argv = sys.argv[1:]
if argv[:1] == ["run"]:
    argv = ["run", *{options!r}, *(word.replace(*{change!r}) for word in argv[1:])]
os.execv("/usr/bin/docker", ["docker", *argv])
"""
SUM = "return (one + other) & MODULO"
WRONG_SUM = (SUM, "return (one + other + 1) & MODULO")


@dataclass(frozen=True)
class Condition:
    """What a host can do. `share` of this machine's cores, `disk` in MB/s (None: as it is), `loss` of packets in percent."""

    share: float | None = None
    rate: str = RATE
    loss: float = 0.0
    adds: tuple[str, str] = (SUM, SUM)
    disk: int | None = None

    def of(self, host: Host, others: Sequence[Host], folder: Path) -> None:
        """Make a host so; `others` are those that it talks to, and the disk is the one that `folder` lies on."""
        host.slow_link(self.rate, BURST)
        lose(host, others, self.loss)
        options = ["--cpus", f"{self.share * (os.cpu_count() or 1):g}"] if self.share is not None else []
        if self.disk is not None:
            device = device_of(folder)
            options += [f"--device-{way}-bps={device}:{self.disk}mb" for way in ("read", "write")]
        wrap_docker(host, options, self.adds)


@dataclass(frozen=True)
class Fault:
    """Something that can be wrong with a host, and the verdict that names it."""

    name: str
    check: str
    code: str
    condition: Condition


FAULTS = (
    Fault("a fifth less compute", "compute", "slow-host", Condition(share=0.8)),
    Fault("a link at half speed", "link", "slow-link", Condition(rate=HALF)),
    Fault("a link that loses 1 %", "link", "slow-link", Condition(loss=1.0)),
    Fault("adds wrongly", "collective", "wrong-result", Condition(adds=WRONG_SUM)),
    Fault("a disk of 25 MB/s", "storage", "slow-storage", Condition(disk=SLOW)),
)
HEALTHY = Condition()


def wrap_docker(host: Host, options: Sequence[str] = (), change: tuple[str, str] = ("", "")) -> None:
    """Have containers of a host run with more options, or with other words in what they run; `install_docker` undoes it."""
    command = host.dir / "bin/docker"
    command.unlink()
    command.write_text(WRAPPER.format(options=list(options), change=change if change[0] else (SUM, SUM)))
    command.chmod(0o755)


def lose(host: Host, others: Sequence[Host], percent: float) -> None:
    """Let the link of a host lose packets in both directions. A kernel may have no `netem`, so receivers drop them."""
    mark = ("-m", "comment", "--comment", f"from-{host.name}")
    random = ("-m", "statistic", "--mode", "random", "--probability", f"{percent / 100:g}")
    for receiver, source in [(host, ()), *((other, ("-s", f"{host.address}/32")) for other in others)]:
        inside = ("nsenter", f"--net=/run/netns/{receiver.namespace}", "iptables", "-w")
        for rule in sh(*inside, "-S", "INPUT").splitlines():
            if mark[-1] in rule.split():
                sh(*inside, "-D", *rule.split()[1:])
        if percent:
            sh(*inside, "-A", "INPUT", "-i", "eth0", *source, *mark, *random, "-j", "DROP")


def wire_packets(host: Host, segments: int = 1) -> None:
    """Let a host send packets as they are on a wire, and not 45 in one: to lose one of these is to lose one packet."""
    sh("ip", "-n", host.namespace, "link", "set", "eth0", "gso_max_segs", str(segments))


def mend(host: Host, others: Sequence[Host]) -> None:
    """Make a host as it was made."""
    host.slow_link(None)
    lose(host, others, 0)
    wire_packets(host, AS_MADE)
    host.install_docker()


def device_of(folder: Path) -> str:
    """Return the block device that a folder lies on. Raises OSError where it lies on none (an overlay, a tmpfs)."""
    number = os.stat(folder).st_dev
    event = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/uevent").read_text()
    return "/dev/" + next(line.partition("=")[2] for line in event.splitlines() if line.startswith("DEVNAME="))
