"""One host of the fleet: what it runs, and what can go wrong with it."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.fleet import engine
from tests.fleet.machine import compose_plugin, engine_root, sh

ENGINE_START = 180.0  # seconds, also for its end
USER, UID = "ml", 4242  # who is not root, but in the group docker


@dataclass
class Host:
    """A network namespace with an address, sshd and a Docker Engine; files below `dir`.

    Its home is `dir`/home, bound over /root in a mount namespace of its own, as each real host has one.
    """

    user: ClassVar[str] = "root"  # who logs in
    own_files: ClassVar[tuple[str, ...]] = ("passwd", "group", "hosts")  # of /etc
    name: str
    address: str
    dir: Path
    bridge: str
    keys: Path  # authorized_keys of all hosts
    compose: bool = True  # whether its docker has the Compose plugin
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    sshd_options: tuple[str, ...] = ()
    behind: str | None = None  # its address, if only hosts of the fleet can reach it
    skew: float = 0.0  # seconds by which the clock that its commands see is ahead
    called: str | None = None  # what it takes its name to be, if that is not how others know it
    binds: dict[Path, str] = field(default_factory=dict)  # what else of this machine it sees in another place
    disk: Path | None = None  # a small file system for the engine and the home, once `small_disk` was asked for

    @property
    def namespace(self) -> str:
        """The name of its network namespace."""
        return f"jc-{self.bridge[3:]}-{self.name}"

    @property
    def hidden(self) -> str:
        """Its address in the network that only hosts of the fleet can reach."""
        first, second, _, last = self.address.split(".")
        return f"{first}.{second}.1.{last}"

    @property
    def cable(self) -> str:
        """The end of its cable that is plugged into the bridge."""
        return f"{self.bridge[3:]}{self.name}"[:15]

    @property
    def socket(self) -> Path:
        """Where its engine listens."""
        return self.dir / "docker.sock"

    @property
    def home(self) -> Path:
        """The home directory of root on it, as seen from outside."""
        return self.dir / "home"

    # Making it.

    def make(self) -> None:
        """Lay the cable and write what a host has on its disk."""
        for folder in ("home", "data", "ssh", "bin", "etc", USER):
            (self.dir / folder).mkdir(parents=True, exist_ok=True)
        self.dir.chmod(0o755)
        self.home.chmod(0o700)
        os.chown(self.dir / USER, UID, UID)
        write_users(self.dir / "etc", self.dir / USER)
        (self.dir / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        sh("ip", "netns", "add", self.namespace)
        sh("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        sh("ip", "link", "set", self.cable, "master", self.bridge, "up")
        inside = ("ip", "-n", self.namespace)
        sh(*inside, "link", "set", "lo", "up")
        sh(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        # A second network that this machine has no address in: what is reachable there only is behind a jump host.
        sh(*inside, "addr", "add", f"{self.hidden}/24", "dev", "eth0")
        sh(*inside, "link", "set", "eth0", "up")
        self.new_host_key()

    def new_host_key(self) -> None:
        """Give it another host key, as a host that was installed anew has."""
        for path in (self.dir / "ssh").glob("host_key*"):
            path.unlink()
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(self.dir / "ssh" / "host_key"))

    def host_key(self) -> str:
        """Return its line for a known_hosts file."""
        kind, key, *_ = (self.dir / "ssh" / "host_key.pub").read_text().split()
        return f"{self.behind or self.address} {kind} {key}"

    def inside(self, *argv: str) -> list[str]:
        """Return the argv that runs a command on the host: its network, its name, its home."""
        # dockerd under `ip netns exec` fails (it remounts /sys), hence nsenter.
        own = " && ".join([f"hostname {self.called or self.name}", *_mounts(self)])
        script = f'{own} && cd /root && exec "$@"'
        return [
            *("nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--uts", "--mount", "--propagation", "slave"),
            *("sh", "-c", script, "sh", *argv),
        ]

    def start(self, what: str, argv: list[str]) -> None:
        """Start a daemon of the host, its output in `dir`/NAME.log."""
        environ = {
            "PATH": f"{self.dir}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
        }
        with (self.dir / f"{what}.log").open("ab") as log:
            self.processes[what] = subprocess.Popen(
                self.inside(*argv),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_sshd(self) -> None:
        """Start its sshd and wait until it listens."""
        keep = self.dir / "ssh"
        options = {
            "HostKey": keep / "host_key",
            "PidFile": keep / "pid",
            "AuthorizedKeysFile": self.keys,
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "SetEnv": f"DOCKER_HOST=unix://{self.socket} PATH={self.dir}/bin:/usr/bin:/bin{self._clock()}",
            "Subsystem": "sftp internal-sftp",
            "KexAlgorithms": "ecdh-sha2-nistp256",  # a sixth of a connection's CPU less than what it would choose
        }
        lines = [*self.sshd_options, *(f"{name} {value}" for name, value in options.items())]
        (keep / "config").write_text("\n".join([f"ListenAddress {self.behind or self.address}:22", *lines]) + "\n")
        (keep / "pid").unlink(missing_ok=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        # -r: a session is a fork; to execute sshd anew for each would cost as much again.
        self.start("sshd", ["/usr/sbin/sshd", "-D", "-e", "-r", "-f", str(keep / "config")])
        wait((keep / "pid").exists, 60, lambda: f"sshd of {self.name} said:\n{last_words(self.dir / 'sshd.log')}")

    def _clock(self) -> str:
        """Return the variables that make commands see another time (libfaketime)."""
        if not self.skew:
            return ""
        library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
        return f" LD_PRELOAD={library} FAKETIME={self.skew:+g}"

    def start_engine(self, *more: str) -> None:
        """Start its Docker Engine and wait until it answers."""
        run = self.dir / "run"
        # The engine waits for a containerd that is dead but not reaped, as it is where nobody is init.
        pid = run / "containerd" / "containerd.pid"
        if pid.exists() and not _is_containerd(int(pid.read_text())):
            pid.unlink()
        self.start(
            "dockerd",
            [
                *("dockerd", "--data-root", str(self.dir / "data"), "--exec-root", str(run)),
                *("--pidfile", str(self.dir / "docker.pid"), "-H", f"unix://{self.socket}", "--group", "docker"),
                *("--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"),
                *("--containerd-namespace", self.namespace, "--containerd-plugins-namespace", f"p-{self.namespace}"),
                *more,
            ],
        )

    def wait_for_engine(self) -> None:
        """Wait until the engine answers."""
        wait(self.engine_answers, ENGINE_START, lambda: f"dockerd said:\n{last_words(self.dir / 'dockerd.log')}")

    def install_images(self) -> None:
        """Give its engine, before it first starts, IMAGE and ETCD_IMAGE. Layers are never written to, so they are linked."""
        root, data = engine_root(), self.dir / "data"
        shutil.copytree(root / "image", data / "image", symlinks=True)
        with contextlib.suppress(subprocess.CalledProcessError):
            sh("cp", "-al", str(root / "overlay2"), str(data))
            return
        sh("cp", "-a", str(root / "overlay2"), str(data))  # another file system

    def engine_answers(self) -> bool:
        """Say whether the engine answers."""
        try:
            engine.containers(self.socket)
        except (OSError, http.client.HTTPException):
            return False
        return True

    def install_docker(self) -> None:
        """Put a `docker` command on its PATH, with or without the Compose plugin."""
        command = self.dir / "bin" / "docker"
        command.unlink(missing_ok=True)
        command.symlink_to("/usr/bin/docker")
        plugin = self.home / ".docker" / "cli-plugins" / "docker-compose"
        plugin.unlink(missing_ok=True)
        if self.compose:
            plugin.parent.mkdir(parents=True, exist_ok=True)
            # No symlink: the cache lies below /root, which is another place on this host.
            try:
                os.link(compose_plugin(), plugin)
            except OSError:
                shutil.copy2(compose_plugin(), plugin)

    # Looking at it.

    def docker(self, *argv: str, check: bool = True) -> str:
        """Run docker against its engine, from outside."""
        return sh("/usr/bin/docker", "-H", f"unix://{self.socket}", *argv, check=check)

    def run(self, *argv: str, check: bool = True) -> str:
        """Run a command on it, without ssh."""
        return sh(*self.inside(*argv), check=check)

    def containers(self) -> list[str]:
        """Return the names of all containers, running or not."""
        return engine.containers(self.socket)

    # What goes wrong.

    def pull_cable(self) -> None:
        """Cut it off: packets vanish in both directions."""
        sh("ip", "link", "set", self.cable, "down")

    def plug_cable(self) -> None:
        """Connect it again."""
        sh("ip", "link", "set", self.cable, "up")

    def slow_link(self, rate: str | None, burst: str = "16kbit") -> None:
        """Let it send no more than `rate` (`256kbit`, per second), `burst` of it at once; None: as much as it can."""
        inside = ("nsenter", f"--net=/run/netns/{self.namespace}", "tc", "qdisc")
        sh(*inside, "del", "dev", "eth0", "root", check=False)
        if rate:
            sh(*inside, "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", burst, "latency", "2s")

    def kill_engine(self) -> None:
        """SIGKILL the engine; what runs in containers goes on, or not, as a real crash has it.

        Its containerd dies with it, a moment later: an engine that starts before would wait for that one in vain.
        """
        pid = self.dir / "run" / "containerd" / "containerd.pid"
        number = int(pid.read_text()) if pid.exists() else 0
        self._kill("dockerd")
        wait(lambda: not number or not _is_containerd(number), 60, lambda: f"containerd {number} outlives its engine")

    def stop_engine(self) -> None:
        """Tell the engine to end, as systemd does: it answers nobody any more, and ends its containers first."""
        process = self.processes.pop("dockerd")
        process.terminate()
        process.wait(ENGINE_START)

    def kill_sshd(self) -> None:
        """SIGKILL sshd and all its sessions."""
        self._kill("sshd")

    def power_off(self) -> None:
        """Cut the power: no packet says goodbye, then everything that runs on it is gone."""
        self.pull_cable()
        self.clear()

    def power_on(self) -> None:
        """Start it again, as after a boot."""
        self.plug_cable()
        self.start_sshd()
        self.start_engine()
        self.wait_for_engine()

    def clear(self) -> None:
        """Kill all that runs on it, and clear what lives in memory on a real host."""
        kill_all(self.namespace)
        for process in self.processes.values():
            process.wait()
        self.processes.clear()
        unmount(self.dir)
        shutil.rmtree(self.dir / "run", ignore_errors=True)
        for name in ("docker.pid", "docker.sock", "ssh/pid"):
            (self.dir / name).unlink(missing_ok=True)

    def _kill(self, what: str) -> None:
        process = self.processes.pop(what)
        try:
            children = [int(pid) for pid in sh("ps", "-o", "pid=", "--ppid", str(process.pid), check=False).split()]
        finally:
            process.kill()
            process.wait()
        for pid in children if what == "sshd" else ():
            kill(pid, self.namespace)

    def small_disk(self, megabytes: int) -> None:
        """Give its home a file system of its own, of that size (to be filled). Before it is started."""
        image = self.dir / "disk.img"
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        sh("mkfs.ext4", "-q", str(image))
        sh("mount", "-o", "loop", str(image), str(self.home))
        self.disk = image

    def fill_disk(self) -> None:
        """Leave no byte free in its home."""
        with contextlib.suppress(OSError), (self.home / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * (1 << 20))
        with contextlib.suppress(OSError), (self.home / "filler2").open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 512)

    def destroy(self) -> None:
        """Remove it without a trace."""
        self.clear()
        sh("ip", "netns", "del", self.namespace, check=False)
        sh("ip", "link", "del", self.cable, check=False)
        unmount(self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)


def _mounts(host: Host) -> list[str]:
    """Return the commands that show a host what is its own: this machine's home is hidden at last."""
    own = {host.dir / "etc" / name: f"/etc/{name}" for name in host.own_files}
    return [f'mount --bind "{source}" {place}' for source, place in {**host.binds, host.home: "/root", **own}.items()]


def write_users(etc: Path, home: Path) -> None:
    """Give a host a user beside root, who is in the group docker."""
    (etc / "passwd").write_text(Path("/etc/passwd").read_text() + f"{USER}:x:{UID}:{UID}::{home}:/bin/sh\n")
    groups = [line for line in Path("/etc/group").read_text().splitlines() if not line.startswith("docker:")]
    (etc / "group").write_text("\n".join([*groups, f"docker:x:{UID + 1}:{USER}", f"{USER}:x:{UID}:\n"]))


def kill_all(namespace: str) -> None:
    """SIGKILL whatever runs in a network namespace, containerd and its shims included."""

    def gone() -> bool:
        pids = [int(pid) for pid in sh("ip", "netns", "pids", namespace, check=False).split()]
        for pid in pids:
            kill(pid, namespace)
        return not pids

    # Who waits for a disk dies when it answers.
    wait(gone, 60, lambda: f"what runs in {namespace} outlives SIGKILL")


def kill(pid: int, namespace: str) -> None:
    """SIGKILL a process of a network namespace, unless it is gone: its number may be another's by now.

    Tests start a hundred processes a second.
    """
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if os.path.samefile(f"/proc/{pid}/ns/net", f"/run/netns/{namespace}"):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def unmount(folder: Path) -> None:
    """Unmount everything below a folder."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for path in reversed([mount for mount in mounts if mount.startswith(f"{folder}/")]):
        sh("umount", "-l", path, check=False)


def _is_containerd(pid: int) -> bool:
    """Say whether the containerd of that number lives: numbers come round, and dockerd waits for whoever has it now."""
    try:
        _, name, rest = re.split(r"\((.*)\)", Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return False
    return name == "containerd" and rest.split()[0] not in "ZX"


def last_words(path: Path) -> str:
    """Return the end of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:]) if path.exists() else f"nothing in {path}"


def wait(look: Callable[[], object], seconds: float, what: Callable[[], str]) -> None:
    """Wait until `look` is true; fails with what `what` returns after `seconds`."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what()}")
        time.sleep(0.02)
