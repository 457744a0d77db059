"""An SSH server at a port of this machine, in the process of the test: the one of `ssh-config`, behind a TCP port."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.ssh_server.keys import Keys, keys_of
from jobctl.jobspec.deploy.ssh_server.server import serve
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.local.session import ProcessSession
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.spec.hosts import Host


@dataclass
class Loopback:
    """A server that lets one key in, and a folder for the files of its clients."""

    folder: Path
    port: int
    keys: Keys
    config: str = ""  # lines of SSH's configuration that come before the others, and so count

    @property
    def known_hosts(self) -> Path:
        """The file of known hosts of its clients, which is not there at first."""
        return self.folder / "known_hosts"

    def line(self, name: str = "") -> str:
        """Return the server's line in a file of known hosts."""
        return f"{name or self.name} {self.keys.host.get_name()} {self.keys.host.get_base64()}\n"

    @property
    def name(self) -> str:
        """What files of known hosts call it."""
        return f"[127.0.0.1]:{self.port}"

    @contextlib.contextmanager
    def client(self, *lines: str, accept_new: bool = False) -> Iterator[Ssh]:
        """Have a connection, not open yet, with more lines of SSH's configuration."""
        config = self.folder / "config"
        common = [f"HostName 127.0.0.1\nPort {self.port}\nUser anybody\nIdentityFile {self.keys.user_file}"]
        common += ["IdentitiesOnly yes", f"UserKnownHostsFile {self.known_hosts}"]
        config.write_text("\n".join(["Host h1", self.config, *common, *lines, ""]))
        there = Ssh(Host("h1"), SshOptions(config, accept_new))
        try:
            yield there
        finally:
            there.close()


@contextlib.contextmanager
def loopback(folder: Path) -> Iterator[Loopback]:
    """Have a server for the length of the `with` block."""
    keys = keys_of(JobDir(folder / "jobs" / "loopback"))
    lines: list[threading.Event] = []  # each is set when its client is served no more
    session = ProcessSession(dict(os.environ), str(folder), "127.0.0.1")

    def serve_one(line: socket.socket, over: threading.Event) -> None:
        with contextlib.suppress(DeployError):  # a client that did not like the key
            serve(line, keys, session, over)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listener.accept()
                lines.append(threading.Event())
                threading.Thread(target=serve_one, args=(line, lines[-1]), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield Loopback(folder, listener.getsockname()[1], keys)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for over in lines:
                over.set()
