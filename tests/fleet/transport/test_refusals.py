"""What is said of each host that SSH cannot reach, over a real sshd."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.fanout import fan_out
from tests.fleet.fleet import Fleet
from tests.fleet.ssh_there import config, refused, ssh, sshd


def test_an_unknown_host_key_is_refused_unless_told_otherwise(hosts: Fleet, tmp_path: Path) -> None:
    known = tmp_path / "known"
    path = config(hosts, tmp_path, UserKnownHostsFile=str(known))
    assert refused(ssh(hosts, config=path)) == ("host-key-unknown", "h1: its host key is not known here")
    assert not known.exists()
    accepting = ssh(hosts, config=path, accept_new=True)
    assert accepting.run(["true"]).code == 0
    accepting.close()
    assert known.read_text() == hosts[0].host_key() + "\n"
    knowing = ssh(hosts, config=path)
    assert knowing.run(["true"]).code == 0
    knowing.close()
    known.unlink()
    by_config = ssh(
        hosts, config=config(hosts, tmp_path, UserKnownHostsFile=str(known), StrictHostKeyChecking="accept-new")
    )
    assert by_config.run(["true"]).code == 0
    by_config.close()


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_changed_host_key_is_always_refused(hosts: Fleet, tmp_path: Path, accept_new: bool) -> None:
    known = tmp_path / "known"
    kind, key = hosts[1].host_key().split()[1:]
    known.write_text(f"{hosts[0].address} {kind} {key}\n")
    path = config(hosts, tmp_path, UserKnownHostsFile=str(known), StrictHostKeyChecking="no")
    code, message = refused(ssh(hosts, config=path, accept_new=accept_new))
    assert (code, "its host key has changed" in message) == ("host-key-changed", True)


def test_a_refused_key(hosts: Fleet, tmp_path: Path) -> None:
    import subprocess

    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    path = config(hosts, tmp_path, IdentityFile=str(tmp_path / "other"))
    assert refused(ssh(hosts, config=path)) == ("key-refused", "h1: it refuses the keys that were offered")


def test_a_host_that_wants_a_password(hosts: Fleet) -> None:
    with sshd(hosts[1], "PubkeyAuthentication no", "PasswordAuthentication yes"):
        code, message = refused(ssh(hosts, "h2"))
    assert (code, message) == ("wants-password", "h2: it lets nobody in by a key, and jobctl uses no passwords")


def test_a_key_that_is_not_there_is_named(hosts: Fleet, tmp_path: Path) -> None:
    code, message = refused(ssh(hosts, identity="/nope"))
    assert (code, message) == ("no-identity", "h1: `identity=/nope`: there is no such file")
    path = config(hosts, tmp_path, IdentityFile=str(tmp_path / "gone"))  # ssh passes over it, and has no other
    assert refused(ssh(hosts, config=path))[0] == "key-refused"


def test_identity_of_the_hosts_file(hosts: Fleet, tmp_path: Path) -> None:
    path = config(hosts, tmp_path, IdentityFile="/no/such/key")
    transport = ssh(hosts, config=path, identity=str(hosts.dir / "key"))
    assert transport.run(["true"]).code == 0
    transport.close()


def test_a_host_that_is_dead(hosts: Fleet, tmp_path: Path) -> None:
    hosts[1].pull_cable()
    try:
        path = config(hosts, tmp_path, ConnectTimeout="1")
        assert refused(ssh(hosts, "h2", config=path))[0] == "unreachable"
    finally:
        hosts[1].plug_cable()


def test_a_host_without_sshd(hosts: Fleet) -> None:
    hosts[1].kill_sshd()
    try:
        assert refused(ssh(hosts, "h2")) == ("connection-refused", "h2: nothing listens at its SSH port")
    finally:
        hosts[1].start_sshd()


def test_a_name_that_nobody_knows(hosts: Fleet) -> None:
    code, message = refused(ssh(hosts, "no-such-host.invalid"))
    assert (code, message) == ("unknown-name", "no-such-host.invalid: its name cannot be resolved")


def test_a_host_that_accepts_and_says_nothing(hosts: Fleet, tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as mute:
        path = config(hosts, tmp_path, HostName="127.0.0.1", Port=str(mute.getsockname()[1]), ConnectTimeout="1")
        begin = time.monotonic()
        assert refused(ssh(hosts, config=path)) == ("unreachable", "h1: it accepts connections, and then says nothing")
        assert time.monotonic() - begin < 60


def test_a_cable_that_is_pulled_during_a_command(hosts: Fleet) -> None:
    transport = ssh(hosts, "h2")
    transport.run(["true"])
    hosts[1].pull_cable()
    try:
        with pytest.raises(HostError) as caught:
            transport.run(["true"], timeout=1)
        assert caught.value.code in ("silent", "lost", "unreachable")
    finally:
        hosts[1].plug_cable()
        transport.close()


def test_one_bad_host_does_not_hide_the_others(hosts: Fleet, tmp_path: Path) -> None:
    every = [ssh(hosts, "h1"), ssh(hosts, "h2"), ssh(hosts, "nobody.invalid")]
    outcome = fan_out(every, lambda transport: transport.run(["hostname"]).out)
    assert list(outcome.done.values()) == [b"h1\n", b"h2\n"]
    assert [error.message for error in outcome.failed.values()] == ["nobody.invalid: its name cannot be resolved"]
    for transport in every:
        transport.close()
