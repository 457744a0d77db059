"""A cluster for each test, and `jobctl` with its kubeconfig."""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes import removal
from jobctl.main import main
from jobctl.views import progress
from tests.kube.backend import CAPABILITIES, SERVERS
from tests.kube.fake import Fake
from tests.kube.real import Real
from tests.kube.server import ApiServer
from tests.kube.store import CORE, KUBEFLOW_PADDLE, PADDLE, PYTORCH, RUNTIME, TRAIN_JOB
from tests.kube.world import World

KINDS = (*CORE, PADDLE, KUBEFLOW_PADDLE, PYTORCH, TRAIN_JOB, RUNTIME)
SPEC = """\
name: resnet
framework: torch
image: registry.example.com/train:1
module: train
nodes: 2
checkpoint: /checkpoints/resnet
stop_grace_period: 1s
"""


# What is said of all of these specs, whose pods ask for nothing and have their checkpoints on their nodes.
_ADVICE = re.compile(r"warning: [^\n]* \[(?:no-requests|node-path)\]\n.*?\nhint: [^\n]*\n\n?", re.S)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate for 127.0.0.1 that signs itself, with its key, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test API server")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: a test that says something of API servers, and runs against all of them")
    config.addinivalue_line("markers", "needs(...): what a server has to have for a test, of backend.CAPABILITIES")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have a test that is marked `real` run against each server; all others, against the fake one."""
    if "api" in metafunc.fixturenames and metafunc.definition.get_closest_marker("real") is not None:
        metafunc.parametrize("api", SERVERS, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the servers that have not what a test needs."""
    unable = [item for item in items if not _is_able(item)]
    config.hook.pytest_deselected(items=unable)
    items[:] = [item for item in items if item not in set(unable)]


def _is_able(item: pytest.Item) -> bool:
    server = (
        item.callspec.params.get("api", "fake")
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else "fake"
    )
    return all(server in CAPABILITIES[name] for mark in item.iter_markers("needs") for name in mark.args)


@pytest.fixture
def api(request: pytest.FixtureRequest, certificate: Path) -> Iterator[ApiServer]:
    """The API server of a test. A real one is the same for all tests of a worker, in a namespace for each."""
    pytest.importorskip("kubernetes")
    which = getattr(request, "param", "fake")
    backend = Fake(KINDS) if which == "fake" else Real(request.getfixturevalue(which))
    server = ApiServer(certificate, backend)
    yield server
    server.close()


def need_operators(api: ApiServer) -> None:
    """Skip where a real server does not know the kinds of operators."""
    if not {one.kind for one in api.backend.served} > {one.kind for one in CORE}:
        pytest.skip("JOBCTL_CRDS names no folder with the CRDs of operators")


@pytest.fixture
def world(api: ApiServer) -> World:
    return World(api)


@dataclass
class Ran:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: ApiServer) -> Path:
    """A directory with a spec, and the environment that `jobctl` finds the cluster by."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(progress, "ALOUD", 1e9)  # whatever takes long here: tests read all that is said
    if api.backend.which in CAPABILITIES["no-collector"]:  # it is known that nobody else begins
        monkeypatch.setattr(removal, "COLLECTOR_TIMEOUT", 0.1)
        monkeypatch.setattr(removal, "ORPHAN_POLL_INTERVAL", 0.1)
    (tmp_path / "job.yaml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def jobctl(here: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run `jobctl` in this process."""

    def run(*argv: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(list(argv))
        out, err = capfd.readouterr()
        return Ran(int(ended.value.code or 0), out, _ADVICE.sub("", err))

    return run
