"""A light fleet: up to a few hundred addresses of one sshd, with a stub for Docker, to test and time fan-out.

What is real: SSH, its authentication and connections, the shell, the files. What is not: `docker`, which here only
notes what it is told to start; a stub engine answers requests for all hosts, and reports as launchers would.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socketserver
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fleet.fleet import _free_network, in_use
from tests.fleet.host import kill_all, last_words, unmount, wait
from tests.fleet.machine import sh

# Who is asked is told by the address that the client connected to. `compose up` and the scripts of target `ssh` come
# here alike; what they start is a file that the stub engine finds.
STUB = """\
#!/bin/sh
set -- $SSH_CONNECTION -- "$@"
address=$3 state=STATE; shift 5
case "$1 $2" in
"system dial-stdio") exec PYTHON -S -E STATE/dial.py "$address" ;;
"compose version") echo 2.99.0 ;;
"compose -f")
  work=$(dirname -- "$3")
  for last do :; done
  # One service a host.
  name=$(awk '/container_name:/ { gsub(/"/, "", $2); print $2; exit }' "$3")
  spec=$(awk '/jobctl.spec/ { gsub(/"/, "", $2); print $2; exit }' "$3")
  owner=$(awk '/jobctl.owner/ { gsub(/"/, "", $2); print $2; exit }' "$3")
  mkdir -p "$state/$address"
  echo "$work ${last#node-} $spec $owner" > "$state/$address/$name"
  echo '{"node": '${last#node-}', "generation": 0, "state": "waiting", "processes": [], "launcher": {}, "exit_code": null, "reason": null, "started_at": null, "progress": null, "failure": null}' > "$work/$last/report.json"
  ;;
ps*) ls "$state/$address" 2>/dev/null; : ;;
*) echo "stub docker: $*" >&2; exit 1 ;;
esac
"""
DIAL = """\
import os, select, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect("STATE/engine.sock")
link.sendall(sys.argv[1].encode() + b"\\n")
open_ = [0, link.fileno()]
while link.fileno() in open_:
    for ready in select.select(open_, [], [])[0]:
        data = os.read(ready, 65536)
        if not data:
            open_.remove(ready)
            if ready == 0:
                link.shutdown(socket.SHUT_WR)
        elif ready == 0:
            link.sendall(data)
        else:
            os.write(1, data)
"""


class _Engine(http.server.BaseHTTPRequestHandler):
    """As much of the engine's API as a job's containers need."""

    protocol_version = "HTTP/1.1"
    state: Path

    def setup(self) -> None:
        super().setup()
        self.address = self.rfile.readline().decode().strip()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer a question."""
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path.endswith("/info"):
            self._answer({"ServerVersion": "99.0.0", "SecurityOptions": []})
        elif "/images/" in path:
            self._answer({"Id": "sha256:" + "0" * 64})
        elif path.endswith("/containers/json"):
            labels = json.loads(query.get("filters", ["{}"])[0]).get("label", [])
            self._answer([c for c in self._containers() if all(_has(c["Labels"], label) for label in labels)])
        elif path.endswith("/events"):
            self._stay_silent()
        else:
            self._answer({"message": path}, 404)

    def _stay_silent(self) -> None:
        """Send the head of a stream, and nothing until who asked has gone."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.rfile.read(1)
        self.close_connection = True

    def do_POST(self) -> None:
        """Stop a container."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(None, 204)

    def do_DELETE(self) -> None:
        """Remove a container."""
        name = urlsplit(self.path).path.rpartition("/")[2]
        (self.state / self.address / name).unlink(missing_ok=True)
        self._answer(None, 204)

    def _containers(self) -> Iterator[dict[str, Any]]:
        for path in sorted((self.state / self.address).glob("*")):
            work, node, spec, owner = path.read_text().split()
            _report(Path(work), int(node))
            job = Path(work).name
            labels = {"jobctl.job": job, "jobctl.node": node, "jobctl.spec": spec, "jobctl.owner": owner}
            yield {"Id": path.name, "State": "running", "ImageID": "sha256:0", "Labels": labels}

    def _answer(self, value: object, code: int = 200) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _has(labels: dict[str, str], wanted: str) -> bool:
    name, equals, value = wanted.partition("=")
    return name in labels and (not equals or labels[name] == value)


def _report(work: Path, node: int) -> None:
    """Report what a launcher would: that it waits, or that it runs the generation it was handed."""
    try:
        order = json.loads((work / "run" / "control.json").read_text())
    except (OSError, ValueError):
        order = {"number": 0, "command": "run"}
    state = "waiting" if order["number"] == 0 else "running" if order["command"] == "run" else "stopped"
    report = {
        **dict.fromkeys(("exit_code", "reason", "started_at", "finished_at", "progress", "failure"), None),
        "node": node,
        "generation": order["number"],
        "state": state,
        "processes": [],
        "launcher": {},
    }
    target = work / f"node-{node}" / "report.json"
    with contextlib.suppress(OSError):
        text = json.dumps(report)
        if not target.exists() or target.read_text() != text:
            new = target.with_suffix(f".{threading.get_ident()}")
            new.write_text(text)
            new.rename(target)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 1024


class LightFleet:
    """Hosts l1, l2 … at 10.N.0.1 …"""

    def __init__(self, size: int) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="jobctl-fleet-"))
        self.network = _free_network()
        self.bridge = f"jc-{self.network}"
        self.namespace = f"jc-{self.network}-light"
        self.size = size
        self.state = self.dir / "state"
        self.home = self.dir / "home"
        self.refusing: set[int] = set()
        self.hanging: set[int] = set()
        self.sshd: subprocess.Popen[bytes] | None = None

    def address(self, number: int) -> str:
        """Return the address of host `number` (from 1)."""
        return f"10.{self.network}.{number // 200}.{number % 200 + 1}"

    @property
    def ssh_config(self) -> Path:
        """The ssh configuration to reach the hosts by their names."""
        return self.dir / "ssh_config"

    def hung(self) -> int:
        """Return how many commands were begun on those of `hanging`."""
        path = self.dir / "hung"
        return len(path.read_text()) if path.exists() else 0

    def up(self) -> None:
        """Make and start everything."""
        for folder in (self.state, self.home, self.dir / "bin"):
            folder.mkdir()
        self.dir.chmod(0o711)
        self._stub()
        for name in ("key", "host_key"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.dir / name))
        sh("ip", "link", "add", self.bridge, "type", "bridge")
        sh("ip", "addr", "add", f"10.{self.network}.255.254/16", "dev", self.bridge)
        sh("ip", "link", "set", self.bridge, "up")
        sh("ip", "netns", "add", self.namespace)
        cable = f"{self.bridge[3:]}light"
        sh("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        sh("ip", "link", "set", cable, "master", self.bridge, "up")
        inside = ("ip", "-n", self.namespace)
        sh(*inside, "link", "set", "lo", "up")
        sh(*inside, "link", "set", "eth0", "up")
        for number in range(1, self.size + 1):
            sh(*inside, "addr", "add", f"{self.address(number)}/16", "dev", "eth0")
        self.start_sshd()
        self._write_ssh_config()

    def _stub(self) -> None:
        values = {"STATE": str(self.state), "PYTHON": sys.executable}
        for path, text in ((self.dir / "bin" / "docker", STUB), (self.state / "dial.py", DIAL)):
            for name, value in values.items():
                text = text.replace(name, value)
            path.write_text(text)
            path.chmod(0o755)
        engine = type("Engine", (_Engine,), {"state": self.state})
        self.server = _Server(str(self.state / "engine.sock"), engine)
        (self.state / "engine.sock").chmod(stat.S_IRWXU)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def start_sshd(self) -> None:
        """Start sshd, with what `refusing` and `hanging` say, and wait until it listens."""
        pid = self.dir / "pid"
        pid.unlink(missing_ok=True)
        common = {
            "HostKey": self.dir / "host_key",
            "PidFile": pid,
            "AuthorizedKeysFile": self.dir / "key.pub",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "MaxStartups": "1000",
            "PrintMotd": "no",
            "SetEnv": f"PATH={self.dir}/bin:/usr/bin:/bin HOME={self.home}",
        }
        lines = [f"{name} {value}" for name, value in common.items()]
        for number in sorted(self.refusing):
            lines += [f"Match LocalAddress {self.address(number)}", "  AuthorizedKeysFile none"]
        for number in sorted(self.hanging):
            command = f"echo >> {self.dir}/hung; exec sleep 1000"
            lines += [f"Match LocalAddress {self.address(number)}", f"  ForceCommand {command}"]
        config = self.dir / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        with (self.dir / "sshd.log").open("ab") as log:
            self.sshd = subprocess.Popen(
                [
                    *("nsenter", f"--net=/run/netns/{self.namespace}"),
                    *("/usr/sbin/sshd", "-D", "-e", "-f", str(config)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": os.environ["PATH"], "HOME": "/root"},
            )
        wait(pid.exists, 60, lambda: f"sshd said:\n{last_words(self.dir / 'sshd.log')}")

    def restart_sshd(self) -> None:
        """Have sshd read its configuration again."""
        assert self.sshd is not None
        self.sshd.kill()
        self.sshd.wait()
        self.start_sshd()

    def switch_off(self, number: int) -> None:
        """Let nothing answer at an address any more."""
        sh("ip", "-n", self.namespace, "addr", "del", f"{self.address(number)}/16", "dev", "eth0")

    def _write_ssh_config(self) -> None:
        kind, key, *_ = (self.dir / "host_key.pub").read_text().split()
        known = [f"{self.address(number)} {kind} {key}\n" for number in range(1, self.size + 1)]
        (self.dir / "known_hosts").write_text("".join(known))
        common = f"  UserKnownHostsFile {self.dir}/known_hosts\n  IdentityFile {self.dir}/key\n  IdentitiesOnly yes\n"
        hosts = [f"Host l{n}\n  HostName {self.address(n)}\n" for n in range(1, self.size + 1)]
        self.ssh_config.write_text("".join(hosts) + f"Host *\n{common}  User root\n")

    def hosts_file(self, path: Path) -> Path:
        """Write a hosts file, and return its path."""
        path.write_text("".join(f"l{n} addr={self.address(n)}\n" for n in range(1, self.size + 1)))
        return path

    def started(self) -> int:
        """Return how many containers were started."""
        return sum(1 for _ in self.state.glob("10.*/*"))

    def down(self) -> None:
        """End and remove everything."""
        if self.sshd is not None:
            self.sshd.kill()
            self.sshd.wait()
        kill_all(self.namespace)
        self.server.shutdown()
        self.server.server_close()
        sh("ip", "netns", "del", self.namespace, check=False)
        sh("ip", "link", "del", self.bridge, check=False)
        unmount(self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)


@contextlib.contextmanager
def light_fleet(size: int) -> Iterator[LightFleet]:
    """Have a light fleet for the length of the `with` block."""
    made = LightFleet(size)
    with in_use(made.dir, made.network):
        try:
            made.up()
            yield made
        finally:
            made.down()
