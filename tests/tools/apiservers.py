"""Real API servers for tests, where `JOBCTL_KUBE` names the folder that has them.

`mini-VERSION.xz` is today's server with strict decoding, server-side apply and CRDs, but without the rules of built-in
types; `kube-apiserver-VERSION.xz` is an old one with all of these. `start-mini`, `start-1.20` and `stop` run them.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from etcd import find_etcd, free_ports

from jobctl.jobspec.deploy.cluster.api import Api, connect

SERVED = 60.0  # seconds within which a kind that was just defined is served


class RealServer:
    """One server, from its start to its end. `which` is `mini` or `full`."""

    def __init__(self, which: str, directory: Path) -> None:
        self.home, self.directory = _home(), directory
        find_etcd()
        directory.mkdir()
        binary = _unpacked(self.home, "mini-" if which == "mini" else "kube-apiserver-", directory)
        argv = [self.home / "start-mini", binary] if which == "mini" else [self.home / "start-1.20", binary.parent]
        # The scripts take this port and the two after it.
        subprocess.run(["bash", *argv, directory, str(_three_ports())], check=True, capture_output=True, timeout=180)
        self.kubeconfig = directory / "kubeconfig"
        self.api: Api = connect(None, None, {"KUBECONFIG": str(self.kubeconfig)})

    def __enter__(self) -> RealServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.api.close()
        subprocess.run(["bash", self.home / "stop", self.directory], check=True, timeout=60)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return the status of an answer and what it says."""
        url = f"{self.api.client.configuration.host}{path}"
        answer = self.api.client.rest_client.pool_manager.request(method, url, json=body)
        try:
            return answer.status, answer.json()
        except ValueError:  # where it knows no such path
            return answer.status, {"message": answer.data.decode()}

    def define(self, crd: Path) -> None:
        """Have the server serve a kind, and wait until it does."""
        with crd.open() as file:
            made = yaml.load(file, yaml.CSafeLoader)
        status, said = self.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)
        assert status == 201, said
        (version, *_) = [one["name"] for one in made["spec"]["versions"] if one["storage"]]
        path = f"/apis/{made['spec']['group']}/{version}/{made['spec']['names']['plural']}"
        deadline = time.monotonic() + SERVED
        while self.ask("GET", path)[0] != 200:
            assert time.monotonic() < deadline, f"{path} is not served"
            time.sleep(0.1)

    def create(self, thing: Mapping[str, Any], namespace: str = "default") -> tuple[int, str]:
        """Return what the server says of an object that it is asked to create, without doing it."""
        kind = self.api.kind_of(thing)
        path = f"{kind.root}/namespaces/{namespace}/{kind.plural}?dryRun=All&fieldValidation=Strict"
        status, said = self.ask("POST", path, thing)
        return status, said.get("message", "")


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


def _three_ports() -> int:
    """Return a port that is free together with the two after it."""
    while True:
        port = free_ports(1)[0]
        if port < 65000 and all(_is_free(port + more) for more in (1, 2)):
            return port


def _is_free(port: int) -> bool:
    import socket

    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0
