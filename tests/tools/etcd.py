"""A real etcd for tests: one or three members as processes on this machine, with certificates and users if asked for."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.tools.ports import free_ports
from tests.tools.processes import bound

READY = 90.0  # seconds within which an etcd answers, which has to write a lot to a disk that may be slow first
RENEWED = "etcd_debugging_lease_renewed_total "  # the leader counts it
USER, PASSWORD = "trainer", 'o\'pen "sesame"'


def find_etcd() -> str:
    """Return the program; skip (or fail, if tools are required) where there is none."""
    found = shutil.which("etcd")
    if found is None:
        (pytest.fail if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip)("no `etcd` on PATH")
    return found


class Etcd:
    """A cluster below `directory`, each member a process; the last `late` of them are not started yet."""

    def __init__(
        self, directory: Path, members: int = 1, *, late: int = 0, tls: bool = False, users: bool = False
    ) -> None:
        self.program, self.directory = find_etcd(), directory
        self.ports = free_ports(2 * members)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.scheme = "https" if tls else "http"
        directory.mkdir()
        self.tls = certificates(directory) if tls else {}
        for number in range(members - late):
            self.start(number)
        self.wait()
        self.token = ""
        if users:
            self._make_users()

    @property
    def endpoints(self) -> list[str]:
        """Where the members answer."""
        return [f"127.0.0.1:{port}" for port in self.ports[::2]]

    def start(self, number: int) -> None:
        """Start one member, new or again."""
        names = [f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self.ports[1::2])]
        client, peer = (f"127.0.0.1:{port}" for port in self.ports[2 * number : 2 * number + 2])
        files = {"trusted-ca-file": "ca", "cert-file": "server-cert", "key-file": "server-key"}
        tls = [f"--{option}={self.directory}/{name}.pem" for option, name in files.items()] if self.tls else []
        argv = bound(
            self.program,
            f"--name=m{number}",
            f"--data-dir={self.directory}/m{number}",
            f"--listen-client-urls={self.scheme}://{client}",
            f"--advertise-client-urls={self.scheme}://{client}",
            f"--listen-peer-urls=http://{peer}",
            f"--initial-advertise-peer-urls=http://{peer}",
            f"--initial-cluster={','.join(names)}",
            *([*tls, "--client-cert-auth"] if tls else ()),
        )
        with (self.directory / f"m{number}.log").open("ab") as log:
            self.processes[number] = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self, number: int) -> None:
        """SIGKILL a member."""
        self.processes[number].kill()
        self.processes.pop(number).wait()

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a member a signal."""
        self.processes[number].send_signal(what)

    def close(self) -> None:
        """End it."""
        for number in list(self.processes):
            self.kill(number)

    def wait(self) -> None:
        """Wait until it has a leader."""
        deadline = time.monotonic() + READY
        while True:
            try:
                if "leader" in self.call("/v3/maintenance/status"):
                    return
            except OSError:
                pass
            logs = "".join(path.read_text()[-2000:] for path in self.directory.glob("m*.log"))
            assert time.monotonic() < deadline, f"etcd does not answer:\n{logs}"
            time.sleep(0.05)

    def call(self, path: str, **body: Any) -> dict[str, Any]:
        """Ask the first member that runs."""
        number = min(self.processes)
        url = f"{self.scheme}://{self.endpoints[number]}{path}"
        headers = {"Authorization": self.token} if getattr(self, "token", "") else {}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        context = None
        if self.tls:
            context = ssl.create_default_context(cafile=self.tls["ca"])
            context.load_cert_chain(self.tls["cert"], self.tls["key"])
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def renewals(self) -> int:
        """Return how often leases were renewed, as those members count that run."""
        counts = []
        for number in self.processes:
            with urllib.request.urlopen(f"{self.scheme}://{self.endpoints[number]}/metrics", timeout=30) as answer:
                counts += [line.split()[1] for line in answer.read().decode().splitlines() if line.startswith(RENEWED)]
        return int(sum(map(float, counts)))

    def keys(self, prefix: str) -> dict[str, Any]:
        """Return what lies below a prefix, each value from JSON."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.call("/v3/kv/range", key=b64(prefix), range_end=b64(end)).get("kvs", [])
        return {base64.b64decode(item["key"]).decode(): json.loads(base64.b64decode(item["value"])) for item in found}

    def _make_users(self) -> None:
        """Have it ask for users: one that may only write below /jobctl/."""
        self.call("/v3/auth/user/add", name="root", password="root")
        self.call("/v3/auth/role/add", name="root")
        self.call("/v3/auth/user/grant", user="root", role="root")
        self.call("/v3/auth/user/add", name=USER, password=PASSWORD)
        self.call("/v3/auth/role/add", name="jobs")
        permission = {"permType": "READWRITE", "key": b64("/jobctl/"), "range_end": b64("/jobctl0")}
        self.call("/v3/auth/role/grant", name="jobs", perm=permission)
        self.call("/v3/auth/user/grant", user=USER, role="jobs")
        self.call("/v3/auth/enable")
        self.token = self.call("/v3/auth/authenticate", name="root", password="root")["token"]


def b64(text: str) -> str:
    """Return text as etcd's gateway wants it."""
    return base64.b64encode(text.encode()).decode()


@contextlib.contextmanager
def etcd(directory: Path, members: int = 1, **how: Any) -> Iterator[Etcd]:
    """Run one for the length of the block."""
    made = Etcd(directory, members, **how)
    try:
        yield made
    finally:
        made.close()


def certificates(directory: Path) -> dict[str, str]:
    """Make an authority, and certificates of a server and a client; return the paths of what the client needs."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.now(UTC)
    keys = {who: ec.generate_private_key(ec.SECP256R1()) for who in ("ca", "server", "client")}
    # etcd's gateway knows no users together with a client's certificate that names one (a CommonName).
    names = {who: x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"test {who}")]) for who in keys}
    for who, key in keys.items():
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[who])
            .issuer_name(names["ca"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=who == "ca", path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(keys["ca"].public_key()), critical=False)
        )
        if who == "ca":
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        made = builder.sign(keys["ca"], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (directory / ("ca.pem" if who == "ca" else f"{who}-cert.pem")).write_bytes(made)
        (directory / f"{who}-key.pem").write_bytes(private)
    return {
        "ca": str(directory / "ca.pem"),
        "cert": str(directory / "client-cert.pem"),
        "key": str(directory / "client-key.pem"),
    }
