"""The engine of a host, through its SSH connection, and what is said of one that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import Transport
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.spec.hosts import Host
from tests.fleet.fleet import Fleet
from tests.fleet.host import USER
from tests.fleet.machine import IMAGE
from tests.fleet.ssh_there import ssh, sshd

# The engine.


def test_the_engine_answers_over_ssh(hosts: Fleet) -> None:
    transport = ssh(hosts)
    with Engine(transport).asked() as client:
        container = client.create_container(IMAGE, ["sh", "-c", "echo out; echo err >&2; exit 3"], labels={"a": "b"})
        client.start(container)
        assert client.wait(container)["StatusCode"] == 3
        assert client.logs(container, stderr=False) == b"out\n"
        assert [c["Id"] for c in client.containers(all=True, filters={"label": "a=b"})] == [container["Id"]]
        client.remove_container(container)
    transport.close()


def _note(opened: list[object], how: Callable[[object], object], what: object) -> object:
    opened.append(what)
    return how(what)


def noted(transport: Ssh, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list into which comes what of `transport` is opened."""
    opened: list[object] = []
    for name in ("dial", "open_socket"):
        monkeypatch.setattr(transport, name, partial(_note, opened, getattr(transport, name)))
    return opened


def use(engine: Engine) -> None:
    with engine.asked() as client:
        container = client.create_container(IMAGE, ["true"])
        client.start(container)
        client.wait(container)
        client.inspect_container(container)
        client.remove_container(container)
        client.info()


def test_all_requests_share_one_connection(hosts: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = ssh(hosts)
    opened = noted(transport, monkeypatch)
    use(Engine(transport))
    assert opened == [str(hosts[0].socket)]
    transport.close()


def test_an_engine_goes_on_after_its_hosts_connection_was_lost(hosts: Fleet) -> None:
    transport = ssh(hosts)
    engine = Engine(transport)
    use(engine)
    (lost := transport._open().transport).close()
    use(engine)
    assert transport._open().transport is not lost
    assert engine.listed("jobctl.job=x") == []
    transport.close()
    assert engine.listed("jobctl.job=x") == []
    transport.close()


def test_an_engine_whose_socket_sshd_does_not_lead_to(hosts: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then `docker` does; each session counts, of which sshd gives ten."""
    with sshd(hosts[1], "AllowStreamLocalForwarding no"):
        transport = ssh(hosts, "h2")
        opened = noted(transport, monkeypatch)
        engine = Engine(transport)
        use(engine)
        use(engine)
        assert opened == [str(hosts[1].socket), ["docker", "system", "dial-stdio"]]
        transport.close()


def test_what_the_engine_refuses_is_told_in_its_words(hosts: Fleet) -> None:
    transport = ssh(hosts)
    with pytest.raises(HostError) as caught, Engine(transport).asked() as client:
        client.create_container("no/such/image:here", ["true"])
    assert (caught.value.code, caught.value.message) == (
        "engine-refused",
        "h1: its engine refuses: No such image: no/such/image:here",
    )
    with pytest.raises(HostError) as caught, Engine(transport).asked(lambda words: HostError("h1", "mine", words)) as c:
        c.create_container("no/such/image:here", ["true"])
    assert caught.value.code == "mine"
    transport.close()


def test_events_arrive_at_once(hosts: Fleet) -> None:
    transport = ssh(hosts)
    with Engine(transport).asked() as client, Engine(transport).asked() as watcher, ThreadPoolExecutor(1) as pool:
        container = client.create_container(IMAGE, ["sleep", "600"])
        # `since`: the engine answers a moment before it listens.
        wanted = {"event": "die", "container": container["Id"]}
        stream = watcher.events(since=int(time.time()), decode=True, filters=wanted)
        first = pool.submit(next, stream)
        client.start(container)
        client.kill(container)
        assert first.result(60)["id"] == container["Id"]  # while the stream of events goes on
        client.remove_container(container)
    transport.close()


def no_engine(transport: Transport, setting: str | None = None) -> tuple[str, str]:
    with pytest.raises(HostError) as caught:
        HostJob(Host("h1", docker=setting), transport, "job", "ssh").containers.seen()
    assert caught.value.hint
    transport.close()
    return caught.value.code, caught.value.message


def test_an_engine_that_does_not_run(hosts: Fleet) -> None:
    hosts[0].kill_engine()
    try:
        assert no_engine(ssh(hosts)) == ("docker-down", "h1: its Docker Engine does not run")
    finally:
        hosts[0].start_engine()
        hosts[0].wait_for_engine()


def test_a_host_without_docker(hosts: Fleet) -> None:
    command = hosts[0].dir / "bin" / "docker"
    command.unlink()
    command.write_text("#!/bin/sh\necho docker: not found >&2\nexit 127\n")
    command.chmod(0o755)
    try:
        assert no_engine(ssh(hosts)) == ("docker-missing", "h1: there is no `docker` on its PATH, and no `podman`")
    finally:
        hosts[0].install_docker()


def test_a_user_who_may_not_talk_to_the_engine(hosts: Fleet) -> None:
    allowed = ssh(hosts, user=USER)
    with Engine(allowed).asked() as client:
        assert client.ping()
    allowed.close()
    hosts[0].socket.chmod(0o600)
    try:
        assert no_engine(ssh(hosts, user=USER))[0] == "docker-no-permission"
    finally:
        hosts[0].socket.chmod(0o660)


def test_the_engine_of_this_machine(hosts: Fleet) -> None:
    url = f"unix://{hosts[0].socket}"
    with Engine(LocalTransport(), url).asked() as client:
        assert client.ping()
    assert no_engine(LocalTransport(), "unix:///no/such/socket")[0] == "docker-down"
