"""A real Slurm on this machine: a controller and nodes, each in network, host name, mount and process namespaces of its own.

As root, with Debian's slurmctld, slurmd, slurm-client and munge. The nodes and the controller are joined by a bridge in a
namespace of its own, so that no address of it is anybody else's. All see this machine's files, as nodes see shared storage.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.tools.processes import bound, by_age

PROGRAMS = ("slurmctld", "slurmd", "squeue", "munged", "ip", "unshare", "nsenter")
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "srun", "sinfo", "sacct")
READY = 240.0  # seconds within which daemons answer; a busy machine takes tens of them to submit a job

# A daemon or a process that stands still for a while is waited for, and neither given up nor called down.
_CONF = """\
ClusterName=test
SlurmctldHost=ctl
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={dir}/munge/socket
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,defer_batch=no
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
SlurmdTimeout=240
MessageTimeout=20
SlurmdParameters=config_overrides
InactiveLimit=0
KillWait=10
MinJobAge={min_job_age}
MailProg=/bin/true
NodeName=s[1-{size}] CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
PartitionName=brief Nodes=ALL MaxTime=1 State=UP
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=ALL PriorityTier=1 State=UP
PartitionName=patient Nodes=ALL PriorityTier=1 GraceTime=240 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""


def missing() -> str | None:
    """Say what a Slurm on this machine lacks, None if nothing."""
    if os.geteuid() != 0:
        return "namespaces need root"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    hint = "`apt-get install --no-install-recommends slurmctld slurmd slurm-client munge` brings Slurm"
    return f"there is no {', '.join(lacking)} here ({hint})" if lacking else None


# Has the programs of another root file system, and of this machine what it shares: /tmp, with the cluster and the jobs, and
# the folders that it is lent.
_ROOT = (
    'hosts="$1" && root="$5" && shift 5 && mount --bind "$root" "$root" && '
    'for place in proc dev sys tmp; do mount --rbind "/$place" "$root/$place" || exit; done && '
    'mount -t tmpfs none "$root/run" && for place do mkdir -p "$root$place" && mount --bind "$place" "$root$place" && '
    'mount -o remount,bind,ro "$root$place" || exit; done && '
    'mount --bind "$hosts" "$root/etc/hosts" && cd "$root" && pivot_root . . && umount --lazy .'
)
_numbers = itertools.count()  # of clusters


class Machine:
    """One machine of the cluster: namespaces that a first process holds. Killing that ends all there is in them."""

    def __init__(self, cluster: Slurm, name: str, number: int) -> None:
        self.cluster, self.name, self.number = cluster, name, number
        self.address = f"10.9.0.{number}"
        self.space = f"{cluster.id}{name}"
        self.first: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Make the namespaces, with the cluster's /etc/hosts."""
        sh("ip", "netns", "add", self.space)
        link = f"v{self.number}"
        switch = self.cluster.switch
        # Of a machine that was off, the others know the hardware address, and call it by that for a while.
        card = ("address", f"02:00:00:00:00:{self.number:02x}")
        sh("ip", "-n", switch, "link", "add", link, "type", "veth", "peer", "name", "eth0", *card, "netns", self.space)
        sh("ip", "-n", switch, "link", "set", link, "master", "bridge", "up")
        for words in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            sh("ip", "-n", self.space, *words)
        sh("ip", "-n", self.space, "link", "set", "lo", "up")
        hosts = self.cluster.dir / "hosts"
        containers = self.cluster.dir / "containers"
        own = containers.with_name(f"containers-{self.name}")
        for folder in (containers, own):
            folder.mkdir(exist_ok=True)
        script = (
            'mount --bind "$1" /etc/hosts && mount --bind "$3" "$4" && hostname "$2" && '
            f"{_ROOT if self.cluster.root else ':'} && echo up && exec sleep infinity"
        )
        self.first = subprocess.Popen(
            bound(
                # Not `ip netns exec`, which mounts another /sys: slurmd looks for its cgroups there.
                *("nsenter", f"--net=/run/netns/{self.space}", "unshare", "--uts", "--mount", "--pid", "--fork"),
                *("--kill-child", "--mount-proc", "sh", "-c", script, "sh", str(hosts), self.name),
                *(str(own), str(containers), str(self.cluster.root or "/"), *map(str, self.cluster.lent)),
            ),
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        assert self.first.stdout is not None
        assert self.first.stdout.readline() == b"up\n"

    @property
    def pid(self) -> int:
        """The first process inside, as this machine numbers it."""
        assert self.first is not None
        children = Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children").read_text().split()
        return int(children[0])

    def inside(self, *argv: str) -> list[str]:
        """Return the command that runs `argv` there, in the same folder."""
        return [
            "nsenter",
            "--target",
            str(self.pid),
            "--net",
            "--uts",
            "--mount",
            "--pid",
            "--wdns=/tmp" if self.cluster.root else f"--wd={os.getcwd()}",
            *argv,
        ]

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start a daemon there."""
        with (self.cluster.dir / f"{self.name}.out").open("ab") as out:
            return subprocess.Popen(
                self.inside(*argv), stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self.cluster.environ
            )

    def slurmd(self) -> None:
        """Start the node's daemon."""
        self.start("slurmd", "-D", "-f", str(self.cluster.conf), "-N", self.name)

    def kill(self) -> None:
        """Switch the machine off: every process of it is killed."""
        if self.first is not None:
            os.kill(self.pid, signal.SIGKILL)
            self.first.wait()
            self.first = None
        subprocess.run(["ip", "netns", "delete", self.space], check=False, capture_output=True)

    def lose(self) -> None:
        """Switch the machine off for good: Slurm calls it down at once, and not only after minutes of silence."""
        self.kill()
        self.cluster.run("scontrol", "update", f"NodeName={self.name}", "State=DOWN", "Reason=test")

    def cable(self, state: str) -> None:
        """Pull the cable (`down`), or plug it in (`up`)."""
        sh("ip", "-n", self.cluster.switch, "link", "set", f"v{self.number}", state)

    def processes(self, word: str) -> list[int]:
        """Return the processes there whose command line has a word, also in containers, the oldest first.

        They are numbered as this machine does.
        """
        found = []
        space = os.readlink(f"/proc/{self.pid}/ns/net")
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(path / "ns/net") == space and word.encode() in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return by_age(found)


class Slurm:
    """A controller `ctl` and nodes s1 to sN. `bin` has Slurm's commands, as on a login node.

    The programs are this machine's, or those of the file system at `root`, which is `lent` folders of this machine.
    """

    def __init__(
        self,
        directory: Path,
        size: int = 4,
        *,
        min_job_age: int = 300,
        root: Path | None = None,
        lent: Sequence[Path] = (),
    ) -> None:
        self.dir, self.root, self.lent = directory, root, tuple(lent)
        self.id = f"sl{os.getpid()}n{next(_numbers)}"
        self.switch = f"{self.id}switch"
        self.ctl = Machine(self, "ctl", 100)
        self.nodes = [Machine(self, f"s{number}", number) for number in range(1, size + 1)]
        self.conf = directory / "slurm.conf"
        self.bin = directory / "bin"
        self.environ = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.munged: subprocess.Popen[bytes] | None = None
        self.controller: subprocess.Popen[bytes] | None = None
        self.min_job_age = min_job_age

    def start(self) -> None:
        """Start all of it, and return once a node is idle."""
        for name in ("state", "spool", "munge", "bin"):
            (self.dir / name).mkdir(parents=True)
        machines = [self.ctl, *self.nodes]
        for node in self.nodes:
            (self.dir / "spool" / node.name).mkdir()
        self.conf.write_text(_CONF.format(dir=self.dir, size=len(self.nodes), min_job_age=self.min_job_age))
        if self.root is not None:
            (self.dir / "cgroup.conf").write_text("CgroupPlugin=disabled\n")  # as before, processes have none
        lines = ["127.0.0.1 localhost", *(f"{machine.address} {machine.name}" for machine in machines)]
        (self.dir / "hosts").write_text("\n".join(lines) + "\n")
        self._munge()
        _remove_dead()
        sh("ip", "netns", "add", self.switch)
        sh("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        sh("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for machine in machines:
            machine.boot()
        self._commands()
        self.control()
        for node in self.nodes:
            node.slurmd()
        self.wait_idle(len(self.nodes))

    def _munge(self) -> None:
        munge = self.dir / "munge"
        munge.chmod(0o711)
        key = munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        options = {"key-file": key, "socket": munge / "socket", "pid-file": munge / "pid"}
        options |= {"log-file": munge / "log", "seed-file": munge / "seed"}
        words = [f"--{name}={path}" for name, path in options.items()]
        self.munged = subprocess.Popen(bound("munged", "--foreground", "--force", *words), stderr=subprocess.DEVNULL)
        wait_for(lambda: (munge / "socket").exists(), "munged")

    def _commands(self) -> None:
        """Write Slurm's commands as programs that run where the controller is: that is the login node."""
        for name in COMMANDS:
            program = self.bin / name
            enter = f'nsenter --target {self.ctl.pid} --net --uts --mount --{"wdns" if self.root else "wd"}="$PWD"'
            inside = f'[ -z "${{SLURMD_NODENAME:-}}" ] || exec /usr/bin/{name} "$@"'  # a job's own calls, on its node
            program.write_text(f'#!/bin/sh\n{inside}\nSLURM_CONF={self.conf} exec {enter} /usr/bin/{name} "$@"\n')
            program.chmod(0o755)

    def control(self) -> None:
        """Start the controller's daemon."""
        self.controller = self.ctl.start("slurmctld", "-D", "-f", str(self.conf))

    def end_control(self) -> None:
        """End the controller's daemon; nodes and jobs go on. Killed, it would forget what happened in the last seconds."""
        for pid in self.ctl.processes("slurmctld"):
            os.kill(pid, signal.SIGTERM)
        assert self.controller is not None
        self.controller.wait()

    def lacks(self, program: str) -> str | None:
        """Say that its machines do not have a program, None if they do."""
        places = [f"{self.root}/usr/{name}" for name in ("bin", "sbin")] if self.root else None
        found = shutil.which(program, path=os.pathsep.join(places) if places else None)
        return None if found else f"there is no {program} {f'in {self.root}' if self.root else 'here'}"

    def run(self, *argv: str, check: bool = True) -> str:
        """Run one of Slurm's commands and return what it prints."""
        done = subprocess.run(
            [str(self.bin / argv[0]), *argv[1:]],
            cwd=self.dir,  # which both file systems have; the checkout may lie where another root has nothing
            capture_output=True,
            text=True,
            check=False,
            timeout=READY,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def idle(self) -> int:
        """Return how many nodes wait for a job."""
        said = self.run("sinfo", "-h", "-N", "-p", "all", "-o", "%T", check=False)
        return said.split().count("idle")

    def wait_idle(self, count: int) -> None:
        """Wait until so many nodes are idle."""
        wait_for(lambda: self.idle() >= count, "idle nodes")

    def clear(self) -> None:
        """Mend what a test has left broken, cancel all jobs, and wait until they are gone and all nodes are idle."""
        if not self.ctl.processes("slurmctld"):
            self.control()
        for node in self.nodes:
            if node.first is None:
                node.boot()
            if not node.processes("slurmd"):
                node.slurmd()
        wait_for(lambda: self.run("sinfo", "-h", "-o", "%T", check=False).strip(), "the controller")
        self.run("scancel", "-u", "root", check=False)
        wait_for(lambda: not self.run("squeue", "-h", check=False).strip(), "an empty queue")
        self.wait_idle(len(self.nodes))

    def end(self) -> None:
        """End all of it."""
        for machine in (*self.nodes, self.ctl):
            machine.kill()
        if self.munged is not None:
            self.munged.terminate()
            self.munged.wait()
        subprocess.run(["ip", "netns", "delete", self.switch], check=False, capture_output=True)


def _remove_dead() -> None:
    """Remove the namespaces of clusters whose makers were killed: their machines have ended with these."""
    for line in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout.splitlines():
        maker = re.match(r"sl(\d+)n\d", line)
        if maker and not Path("/proc", maker[1]).exists():
            subprocess.run(["ip", "netns", "delete", line.split()[0]], check=False, capture_output=True)


def sh(*argv: str) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (argv, done.stderr)


def wait_for(holds: object, what: str, seconds: float = READY) -> None:
    """Wait until a condition holds."""
    assert callable(holds)
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if holds():
            return
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(max(0.1, 2 * (time.monotonic() - began)))  # looking often would slow down what is waited for


@contextlib.contextmanager
def slurm(directory: Path, size: int = 4, root: Path | None = None, **more: Any) -> Iterator[Slurm]:
    """A Slurm for the length of the block."""
    made = Slurm(directory, size, root=root, **more)
    try:
        made.start()
        yield made
    finally:
        made.end()


def main(arguments: Sequence[str]) -> None:
    """Keep a Slurm running until a key is pressed, and say how to use it."""
    directory = Path(arguments[0])
    root = Path(arguments[2]) if len(arguments) > 2 else None
    with slurm(directory, int(arguments[1]) if len(arguments) > 1 else 4, root) as made:
        print(f"PATH={made.bin}:$PATH", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    import sys

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    main(sys.argv[1:])
