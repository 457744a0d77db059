"""Several hosts on one bridge, and the files with which they are reached."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, ClassVar

from tests.fleet.host import Host, kill_all, unmount
from tests.fleet.machine import compose_plugin, engine_root, sh
from tests.tools import standins

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = {"packages": Path(sysconfig.get_path("purelib")), "examples": EXAMPLES, "standins": Path(standins.PATH)}
NOTHING: Mapping[str, Path] = {}
MAKER = "maker"  # a file in the fleet's folder that its maker holds a lock of
_RESERVED: dict[int, IO[str]] = {}  # open files, whose locks keep the numbers of networks


class Fleet:
    """Hosts h1, h2 … (or of other `numbers`) at 10.N.0.1 …, with a key and an ssh configuration that reach them."""

    kind: ClassVar[type[Host]] = Host  # what its hosts are

    def __init__(
        self,
        directory: Path,
        size: int,
        *,
        engines: bool = True,
        network: int | None = None,
        numbers: Sequence[int] = (),
        lends: Mapping[str, Path] = NOTHING,
        called: str | None = None,
    ) -> None:
        self.dir, self.engines, self.lends = directory, engines, lends
        self.network = network if network is not None else _free_network()
        self.bridge = f"jc-{self.network}"
        self.called = called
        self.hosts = [self._host(number) for number in numbers or range(1, size + 1)]
        self.all_hosts = self.hosts  # also of a copy that shows some of them only: all share one known_hosts

    def _host(self, number: int) -> Host:
        address, folder = f"10.{self.network}.0.{number}", self.dir / f"h{number}"
        return self.kind(f"h{number}", address, folder, self.bridge, self.dir / "keys", called=self.called)

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    @property
    def outside(self) -> str:
        """The address at which hosts reach this machine, while it reaches them."""
        return f"10.{self.network}.0.254"

    @property
    def ssh_config(self) -> Path:
        """The ssh configuration to reach the hosts by their names."""
        return self.dir / "ssh_config"

    @property
    def small(self) -> Path:
        """A file system of one megabyte that all hosts see, to be filled."""
        return self.dir / "small"

    def up(self) -> None:
        """Make and start everything; what is made is removed again if that fails."""
        self.dir.mkdir(parents=True, exist_ok=True)
        self.dir.chmod(0o711)  # sshd reads the keys as the user who logs in
        if self.engines:
            engine_root(), compose_plugin()
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fleet", "-f", str(self.dir / "key"))
        shutil.copy(self.dir / "key.pub", self.dir / "keys")
        try:
            # Hosts see only what is mounted before they are there.
            for name, path in {**OWN, **self.lends}.items():
                self._lend(name, path)
            self.small.mkdir()
            sh("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(self.small))
            sh("ip", "link", "add", self.bridge, "type", "bridge")
            self.connect()
            sh("ip", "link", "set", self.bridge, "up")
            self._start_all(self.hosts)
        except BaseException:
            self.down()
            raise
        self.write_ssh_config()

    def connect(self) -> None:
        """Let this machine reach the hosts, unless it does."""
        sh("ip", "addr", "replace", f"{self.outside}/24", "dev", self.bridge)
        sh("ip", "route", "flush", "type", "blackhole", "root", f"10.{self.network}.0.0/24", check=False)

    def grow(self, size: int) -> list[Host]:
        """Make more hosts until there are `size`, and return them."""
        more = [self._host(number) for number in range(len(self.hosts) + 1, size + 1)]
        self._start_all(more)
        self.hosts += more
        return more

    def renew(self, host: Host) -> None:
        """Remove a host, and make one of the same name in its place."""
        host.destroy()
        new = self._host(int(host.name[1:]))
        vars(host).update(vars(new))
        self._start(host)

    def _start_all(self, hosts: Sequence[Host]) -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self._start, hosts))

    def _lend(self, name: str, path: Path) -> None:
        """Show a folder of this machine on every host, read-only: its own path may lie below /root, where they have their homes."""
        place = self.lent(name)
        place.mkdir(parents=True)
        sh("mount", "--bind", str(path), str(place))
        sh("mount", "-o", "remount,bind,ro", str(place))

    def lent(self, name: str) -> Path:
        """The path on the hosts of what is lent to them: `packages` (this Python's site-packages), `examples`, `standins`, and more if asked for."""
        return self.dir / "lent" / name

    def _start(self, host: Host) -> None:
        host.make()
        host.start_sshd()
        if self.engines:
            host.install_docker()
            host.install_images()
            host.start_engine()
            host.wait_for_engine()

    def write_ssh_config(self) -> None:
        """Write known_hosts and the ssh configuration."""
        (self.dir / "known_hosts").write_text("".join(f"{host.host_key()}\n" for host in self.all_hosts))
        common = [
            f"UserKnownHostsFile {self.dir}/known_hosts",
            f"IdentityFile {self.dir}/key",
            "IdentitiesOnly yes",
            "ConnectTimeout 8",  # of a dead host; any other may stand still for some seconds
        ]
        blocks = [
            [
                *(f"Host {host.name}", f"HostName {host.behind or host.address}", f"User {host.user}"),
                *(*common, *self._jump(host)),
            ]
            for host in self.all_hosts
        ]
        self.ssh_config.write_text("".join("\n  ".join(block) + "\n" for block in blocks))

    def _jump(self, host: Host) -> list[str]:
        return [f"ProxyJump {self.hosts[0].name}"] if host.behind else []

    def down(self) -> None:
        """End and remove everything."""
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(Host.destroy, self.hosts))
        sh("ip", "link", "del", self.bridge, check=False)
        unmount(self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)

    def hosts_file(self, path: Path, extra: str = "") -> Path:
        """Write a hosts file that names the hosts by their addresses' aliases, and return its path."""
        path.write_text("".join(f"{host.name} addr={host.address} {extra}".rstrip() + "\n" for host in self.hosts))
        return path


def sweep() -> int:
    """Remove the hosts of fleets whose makers were killed; return how many those were."""
    folders = _folders()
    kept = {network for folder in folders if (network := _network_in_use(folder))}
    count = _remove_networks(lambda network: network not in kept)
    for folder in folders:
        if _network_in_use(folder) is None:
            unmount(folder)
            shutil.rmtree(folder, ignore_errors=True)
    return count


def remove_dead() -> None:
    """Remove fleets whose makers are certainly gone: each left a folder that says which network is its.

    One that is being made has an empty file there. While a fleet is removed it counts as in use, so nobody else does.
    """
    for folder in _folders():
        with contextlib.suppress(FileNotFoundError), (folder / MAKER).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            mine = file.read()
            if not mine:
                continue
            others = {_network_in_use(other) for other in _folders() if other != folder}
            if mine not in others:
                _remove_networks(mine.__eq__)
            unmount(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("jobctl-fleet-*"))


def _remove_networks(is_left: Callable[[str], bool]) -> int:
    """Remove hosts and bridges of networks, by their numbers; return how many hosts those were. A bridge goes last."""

    def left(name: str) -> bool:
        return name.startswith("jc-") and is_left(name.split("-")[1])

    names = [name for line in sh("ip", "netns").splitlines() if left(name := line.split()[0])]
    for name in names:
        kill_all(name)
        sh("ip", "netns", "del", name, check=False)
    for line in sh("ip", "-o", "link").splitlines():
        link = line.split(":")[1].strip().partition("@")[0]
        if left(link):
            sh("ip", "link", "del", link, check=False)
    return len(names)


@contextlib.contextmanager
def in_use(folder: Path, network: int) -> Iterator[None]:
    """Keep `sweep` from a fleet for as long as this process lives. What was killed before it is removed first."""
    remove_dead()
    with (folder / MAKER).open("w") as maker:
        fcntl.flock(maker, fcntl.LOCK_EX)
        maker.write(str(network))
        maker.flush()
        yield


def _network_in_use(folder: Path) -> str | None:
    """Return the number of a fleet's network if its maker lives."""
    with contextlib.suppress(FileNotFoundError), (folder / MAKER).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
    return None


def _free_network() -> int:
    """Return a number N for which 10.N.0.0/24 is not in use here, nor about to be by another process."""
    start = os.getpid() % 100
    for number in (100 + (start + k) % 100 for k in range(100)):
        if _reserve(number) and f"10.{number}.0." not in sh("ip", "-o", "addr"):
            return number
    raise RuntimeError("all of 10.100.0.0/24 to 10.199.0.0/24 are in use")


def _reserve(number: int) -> bool:
    """Keep other processes from a network's number as long as this one lives; return whether none of them has it."""
    if number not in _RESERVED:
        folder = Path(tempfile.gettempdir(), "jobctl-networks")  # its files stay: who removed one could free a lock
        folder.mkdir(exist_ok=True)
        file = (folder / str(number)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        _RESERVED[number] = file
    return True


@contextlib.contextmanager
def fleet(size: int, of: type[Fleet] = Fleet, **how: Any) -> Iterator[Fleet]:
    """Have a fleet for the length of the `with` block."""
    made = of(Path(tempfile.mkdtemp(prefix="jobctl-fleet-")), size, **how)
    with in_use(made.dir, made.network):
        made.up()
        try:
            yield made
        finally:
            made.down()
