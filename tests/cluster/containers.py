"""Pods in containers of a fleet's hosts, made as a kubelet makes them: images, networks and limits are real.

Each pod has a container that does nothing but hold its network: a link of its own to the host's network (macvlan), so that
it is cut off where the host is. The containers of the pod are in that one's network.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.machine import IMAGE, sh
from tests.tools.frameworks import Name

from .pods import Container, Pod

PATIENCE = 60.0  # seconds for a container to begin


@dataclass
class Docked:
    """A container of a host; `client` is the `docker start` that is attached to it."""

    host: Host
    name: str
    client: subprocess.Popen[bytes]
    begun: int = 0

    @property
    def pid(self) -> int:
        """The first process in it, by its number on this machine."""
        deadline = time.monotonic() + PATIENCE
        while not self.begun and self.client.poll() is None and time.monotonic() < deadline:
            self.begun = int(self.host.docker("inspect", "-f", "{{.State.Pid}}", self.name, check=False).strip() or 0)
        return self.begun

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self.client.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended."""
        return self.client.wait(timeout)

    def kill(self) -> None:
        """End all that it holds at once."""
        self.host.docker("kill", self.name, check=False)


class Containers:
    """The hosts of a fleet, which take pods in turn; the address of a host is not one of a pod."""

    def __init__(self, made: Fleet) -> None:
        self.fleet = made
        self.numbers = itertools.count(100)
        self.names = itertools.count()

    def overrides(self, framework: Name | None) -> dict[str, str]:
        """Have the image's Python import what is lent to the hosts, from volumes; with PyTorch the real scikit-learn, too."""
        places = {"/standins": "standins", "/packages": framework} if framework else {"/packages": "packages"}
        volumes = [f"{self.fleet.lent(lent)}:{place}:ro" for place, lent in places.items()]
        return {
            "image": IMAGE,
            "pull": "never",
            "volumes": str(volumes),
            "env.PYTHONPATH": ":".join(places),
        }

    def address(self) -> str:
        """Return the next address of the fleet's network."""
        number = next(self.numbers)
        assert number < 250, "a fleet has addresses for 150 pods"
        return f"10.{self.fleet.network}.0.{number}"

    def host(self, pod: Pod) -> Host:
        """Return the host of a pod: another one each time that it is started."""
        return self.fleet[(pod.cluster.pods.index(pod) + pod.attempt) % len(self.fleet.hosts)]

    def begin(self, pod: Pod) -> None:
        """Make what holds the pod's network."""
        host, name = self.host(pod), self.sandbox(pod)
        names = ("--hostname", pod.name, "--mount", f"type=bind,src={pod.cluster.hosts},dst=/etc/hosts")
        host.docker("run", "-d", "--init", "--name", name, "--network", "none", *names, IMAGE, "sleep", "infinity")
        pid = host.docker("inspect", "-f", "{{.State.Pid}}", name).strip()
        link = f"pod{next(self.names)}"
        sh("ip", "-n", host.namespace, *("link", "add", link, "link", "eth0", "type", "macvlan", "mode", "bridge"))
        sh("ip", "-n", host.namespace, *("link", "set", link, "netns", pid, "name", "eth0"))
        inside = ("nsenter", "-t", pid, "--net", "ip")
        sh(*inside, "addr", "add", f"{pod.address}/24", "dev", "eth0")
        sh(*inside, "link", "set", "eth0", "up")

    def sandbox(self, pod: Pod) -> str:
        """Return the name of the container that holds the network of a pod's present attempt."""
        return f"{pod.name}-{pod.attempt}"

    def run(self, pod: Pod, container: Container, log: Path) -> Docked:
        """Start a container."""
        host, sandbox = self.host(pod), self.sandbox(pod)
        name = f"{sandbox}-{log.stem}"
        options = [
            *("--name", name, "--network", f"container:{sandbox}", "--pull", "never"),
            *("--mount", f"type=bind,src={pod.cluster.hosts},dst=/etc/hosts"),
            *(("--user", container.user) if container.user else ()),
            *(("--workdir", container.workdir) if container.workdir else ()),
            *(word for key, value in container.env.items() for word in ("--env", f"{key}={value}")),
        ]
        for mount in container.mounts:
            if mount.source is None:
                size = f",size={mount.size}" if mount.size else ""
                options += ["--tmpfs", f"{mount.target}:rw,exec{size}"]
            else:
                read_only = ",readonly" if mount.read_only else ""
                options += ["--mount", f"type=bind,src={mount.source},dst={mount.target}{read_only}"]
        program, *rest = container.argv
        host.docker("create", *options, "--entrypoint", program, container.image, *rest)
        with log.open("ab") as out:
            client = subprocess.Popen(
                ["/usr/bin/docker", "-H", f"unix://{host.socket}", "start", "--attach", name],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return Docked(host, name, client)

    def end(self, pod: Pod) -> None:
        """Remove the containers of all its attempts."""
        for host in self.fleet.hosts:
            mine = [name for name in host.containers() if name.startswith(f"{pod.name}-")]
            if mine:
                host.docker("rm", "-f", *mine)
