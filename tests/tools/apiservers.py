"""Real API servers for tests, where `JOBCTL_KUBE` names the folder that has them: each is started once for all workers.

`mini-VERSION.xz` is today's server with strict decoding, server-side apply and CRDs, but without the rules of built-in
types; `kube-apiserver-VERSION.xz` is an old one with all of these. `start-mini`, `start-1.20` and `stop` run them.
The kinds of the operators are there where `JOBCTL_CRDS` names the folder with their CRDs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import lzma
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from urllib3.exceptions import HTTPError

from jobctl.jobspec.deploy.kubernetes.api import Api, connect
from tests.tools.etcd import find_etcd
from tests.tools.ports import free_ports

READY = 300.0  # seconds within which a server is ready that was started
SERVED = 60.0  # seconds within which a kind that was just defined is served
# Of the controller manager. Pods are made by tests, and need no token.
CONTROLLERS = "--controllers=garbagecollector,namespace"
GPUS = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}


class RealServer:
    """One server, which runs in a directory. `which` is `mini` or `full`."""

    def __init__(self, which: str, directory: Path) -> None:
        self.which, self.directory = which, directory
        self.kubeconfig = directory / "kubeconfig"
        self.api: Api = connect(None, None, {"KUBECONFIG": str(self.kubeconfig)})

    def wait(self) -> None:
        """Wait until it is ready: the scripts give up after two minutes, on a machine that has others to serve."""
        deadline = time.monotonic() + READY
        while True:
            with contextlib.suppress(HTTPError):
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in self.directory.glob("logs/*.log"))
            assert time.monotonic() < deadline, f"the API server is not ready:\n{logs}"
            time.sleep(0.1)

    def request(self, method: str, path: str, body: Any, headers: Mapping[str, str], *, stream: bool = False) -> Any:
        """Return the open answer to a request."""
        url = f"{self.api.client.configuration.host}{path}"
        pool = self.api.client.rest_client.pool_manager
        more: dict[str, Any] = {} if body is None else {"json": body}
        timeout = None if stream else 120.0
        headers = {"Accept": "application/json", "Content-Type": "application/json", **headers}
        return pool.request(method, url, headers=headers, preload_content=False, timeout=timeout, retries=False, **more)

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content: str = "application/json"
    ) -> tuple[int, Any]:
        """Return the status of an answer and what it says."""
        answer = self.request(method, path, body, {"Content-Type": content})
        data = answer.read()
        answer.release_conn()
        try:
            return answer.status, json.loads(data)
        except ValueError:  # where it knows no such path
            return answer.status, {"message": data.decode()}

    def define(self, crds: Sequence[Path]) -> None:
        """Have the server serve kinds, and wait until it does: all at once, as it counts its kinds anew after each."""
        paths = []
        for crd in crds:
            with crd.open() as file:
                made = _without_descriptions(yaml.load(file, yaml.CSafeLoader))
            status, said = self.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)
            assert status == 201, said
            (version, *_) = [one["name"] for one in made["spec"]["versions"] if one["storage"]]
            paths.append(f"/apis/{made['spec']['group']}/{version}/{made['spec']['names']['plural']}")
        deadline = time.monotonic() + SERVED
        for path in paths:
            while self.ask("GET", path)[0] != 200:
                assert time.monotonic() < deadline, f"{path} is not served"
                time.sleep(0.1)

    def make_namespace(self, name: str, *accounts: str) -> None:
        """Make a namespace, and accounts of pods in it that need no token: no controller makes those here."""
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for account in ("default", *accounts):
            made = {"metadata": {"name": account}, "automountServiceAccountToken": False}
            self.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", made)

    def furnish(self) -> None:
        """Make what pods name, and what they run on."""
        for space in ("default", "research"):
            self.make_namespace(space, "trainer")
        self.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
        runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        self.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
        for number in range(3):
            node = {"metadata": {"name": f"worker-{number}"}}
            self.ask("POST", "/api/v1/nodes", node)
            merge = "application/merge-patch+json"
            self.ask("PATCH", f"/api/v1/nodes/worker-{number}/status", {"status": {"allocatable": GPUS}}, merge)

    def collect(self) -> None:
        """Have the controller manager collect garbage. It looks once at which kinds there are, so it comes after them."""
        binary = _unpacked(_home(), "kube-controller-manager-", self.directory)
        ports = free_ports(1)
        argv = [str(binary), f"--kubeconfig={self.kubeconfig}", CONTROLLERS, "--leader-elect=false", "--port=0"]
        argv += ["--bind-address=127.0.0.1", f"--secure-port={ports[0]}", f"--cert-dir={self.directory}/cm"]
        with (self.directory / "logs" / "cm.log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        (self.directory / "cm.pid").write_text(str(process.pid))  # `stop` ends it


def crds() -> list[Path]:
    """Return the CRDs of the operators, none where JOBCTL_CRDS names no folder."""
    folder = os.environ.get("JOBCTL_CRDS")
    return [crd for crd in sorted(Path(folder).glob("*.yaml")) if "v1beta1" not in crd.name] if folder else []


def _without_descriptions(schema: Any) -> Any:
    """Return a CRD without what people read in it: a server takes a seventh less CPU to be ready with these."""
    if isinstance(schema, list):
        return [_without_descriptions(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if not (key == "description" and isinstance(value, str))}
    return {key: _without_descriptions(value) for key, value in kept.items()}


def _start(which: str, directory: Path) -> None:
    """Start a server that has all that tests need."""
    find_etcd()
    directory.mkdir()
    home = _home()
    binary = _unpacked(home, "mini-" if which == "mini" else "kube-apiserver-", directory)
    argv = [home / "start-mini", binary] if which == "mini" else [home / "start-1.20", binary.parent]
    try:
        # The scripts take this port and the three after it.
        start = ["bash", *map(str, argv), str(directory), str(free_ports(4)[0])]
        environ = {**os.environ, "GOGC": "500"}  # memory is cheaper than time
        done = subprocess.run(start, check=False, capture_output=True, text=True, timeout=600, env=environ)
        assert done.returncode == 0, done.stderr
        server = RealServer(which, directory)
        server.wait()
        server.define(crds())
        server.furnish()
        if which == "full":
            server.collect()
        server.api.close()
    except BaseException:
        _stop(directory)
        raise


def _stop(directory: Path) -> None:
    subprocess.run(["bash", _home() / "stop", directory], check=True, timeout=60)


def _shared(which: str, factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Yield the server that all workers use: the first who wants it starts it, the last who does ends it."""
    _home()
    base = factory.getbasetemp()
    uses = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"{which}-uses"
    with _uses(uses) as users:
        directory = uses.with_name(users[0] if users else f"{which}-{os.getpid()}")
        if not users:
            _start(which, directory)
        users.append(directory.name)
    server = RealServer(which, directory)
    try:
        yield server
    finally:
        server.api.close()
        with _uses(uses) as users:
            users.remove(directory.name)
            if not users:
                _stop(directory)


@contextlib.contextmanager
def _uses(path: Path) -> Iterator[list[str]]:
    """Lend the list of those who use a server, each by the name of its directory, to one worker at a time."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        users = file.read().split()
        yield users
        file.seek(0)
        file.truncate()
        file.write("\n".join(users))


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Today's server."""
    yield from _shared("mini", tmp_path_factory)


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """The old server with all rules of pods. It has no Indexed Jobs and drops what it does not know."""
    yield from _shared("full", tmp_path_factory)


def _home() -> Path:
    """Return the folder with the servers; skip where there is none."""
    named = os.environ.get("JOBCTL_KUBE")
    if not named:
        pytest.skip("JOBCTL_KUBE names no folder with API servers")
    return Path(named)


def _unpacked(home: Path, prefix: str, directory: Path) -> Path:
    """Unpack a server, under the name by which its script knows it."""
    (packed,) = home.glob(f"{prefix}*.xz")
    binary = directory / prefix.rstrip("-")
    with lzma.open(packed) as source, binary.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    binary.chmod(0o755)
    return binary
