"""Images that come from a real registry, with credentials of the user's own."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bcrypt
import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.machine import IMAGE, cache, locked
from tests.tools.waiting import eventually

# Engines ask for TLS everywhere but on the loopback: each host has a door of its own to the one store.
REGISTRY = "127.0.0.1:5055"
USER, PASSWORD = "ada", "correct-horse-battery"
NAME = f"{REGISTRY}/lab/torch:1"
CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {store}}}}}
http: {{addr: {registry}}}
auth: {{htpasswd: {{realm: test, path: {users}}}}}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, hosts: Fleet) -> Iterator[None]:
    """One that has the image, and that each host reaches at its own door. To push it takes seven seconds of CPU: it is kept."""
    folder = tmp_path_factory.mktemp("registry")
    if not shutil.which("docker-registry"):
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(
            "docker-registry is not installed"
        )
    users, config = folder / "users", folder / "registry.yml"
    kept = cache() / f"registry-{hosts[0].docker('image', 'inspect', '--format', '{{.Id}}', IMAGE).strip()[7:19]}"
    if kept.exists():
        shutil.copytree(kept, folder / "store")
    users.write_bytes(USER.encode() + b":" + bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)) + b"\n")
    config.write_text(CONFIG.format(store=folder / "store", registry=REGISTRY, users=users))
    for host in hosts.hosts:
        host.start("registry", ["docker-registry", "serve", str(config)])
    try:
        for host in hosts.hosts:
            eventually(partial(listens, host))
        log_in(folder)
        if not kept.exists():
            push(hosts, folder)
            keep(folder / "store", kept)
        yield
    finally:
        for host in hosts.hosts:
            host._kill("registry")


@pytest.fixture
def jobs(tmp_path: Path, hosts: Fleet, registry: None) -> Iterator[Jobs]:
    made = Jobs(tmp_path, hosts, SPEC.replace(IMAGE, NAME).replace("pull: never", "pull: missing"))
    log_in(tmp_path)
    yield made
    down = made.run("down", *made.where)
    assert (down.returncode, made.containers(), made.files()) == (0, [[], []], []), down.stderr
    for host in hosts.hosts:
        subprocess.run(docker(hosts, host.name, tmp_path, "rmi", NAME), capture_output=True, check=False)


def listens(host: Host) -> bool:
    """Say whether the host's registry accepts connections."""
    address, _, port = REGISTRY.partition(":")
    script = f"import socket; socket.create_connection(({address!r}, {port}), 1)"
    return subprocess.run(host.inside("python3", "-c", script), capture_output=True, check=False).returncode == 0


def log_in(home: Path) -> None:
    """Write the file that `docker login` writes."""
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {REGISTRY: {"auth": auth()}}}))


def auth() -> str:
    return base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def docker(hosts: Fleet, name: str, home: Path, *args: str) -> list[str]:
    host = next(host for host in hosts.hosts if host.name == name)
    return ["docker", "--config", str(home / ".docker"), "-H", f"unix://{host.socket}", *args]


def push(hosts: Fleet, home: Path) -> None:
    """Put the image there from the first host, whose engine forgets its name again."""
    for args in (("tag", IMAGE, NAME), ("push", "--quiet", NAME), ("rmi", NAME)):
        subprocess.run(docker(hosts, "h1", home, *args), capture_output=True, check=True)


def keep(store: Path, kept: Path) -> None:
    """Keep what the registry has, for later runs."""
    with locked(cache() / "registry.lock"), tempfile.TemporaryDirectory(dir=cache()) as scratch:
        shutil.copytree(store, Path(scratch) / "store")
        if not kept.exists():
            os.rename(Path(scratch) / "store", kept)


def test_an_image_is_pulled_with_the_users_credentials(jobs: Jobs) -> None:
    check = jobs.run("check", *jobs.where)
    assert check.returncode == 0, check.stderr
    up, hosts = jobs.up(), jobs.fleet.hosts
    assert up.returncode == 0, up.stderr
    here = [json.loads(host.docker("image", "inspect", "--format", "{{json .RepoDigests}}", NAME)) for host in hosts]
    ((digest,),) = [digests for digests in here if digests]  # one host has pulled it, and handed it on
    assert digest.startswith(f"{REGISTRY}/lab/torch@sha256:")
    for host in hosts:
        ledger = host.home / ".jobctl" / host.name / "counter" / "run" / "ledger.json"
        assert json.loads(ledger.read_text())["image"]["digests"] == [digest]
        words = ["-e", PASSWORD, "-e", auth()]
        left = subprocess.run(["grep", "-rlF", *words, host.home], capture_output=True, text=True, check=False)
        assert left.stdout == ""


def test_without_credentials_or_a_tag(jobs: Jobs) -> None:
    jobs.spec(SPEC.replace(IMAGE, NAME.replace("torch:1", "torch:2")).replace("pull: never", "pull: missing"))
    done = jobs.up(check=True)
    assert (done.returncode, "is the tag right?" in done.stderr) == (3, True), done.stderr
    shutil.rmtree(jobs.directory / ".docker")
    done = jobs.up(check=True)
    assert (done.returncode, "`docker login` here" in done.stderr) == (3, True), done.stderr
    assert jobs.containers() == [[], []]
