"""The fleet itself: hosts are hosts, and each fault is what it says."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet, fleet, remove_dead
from tests.fleet.host import USER, Host
from tests.fleet.machine import IMAGE, sh
from tests.fleet.shared import Shared
from tests.tools.waiting import eventually, promptly


def ssh(
    fleet: Fleet, host: Host, *argv: str, user: str = "root", timeout: int = 60
) -> subprocess.CompletedProcess[str]:
    options = ["-o", f"ConnectTimeout={timeout}", "-o", "BatchMode=yes", "-l", user]
    return subprocess.run(
        ["ssh", "-F", str(fleet.ssh_config), *options, host.name, *argv], capture_output=True, text=True, check=False
    )


def test_hosts_have_names_addresses_and_engines_of_their_own(hosts: Fleet) -> None:
    first, second = hosts.hosts
    assert [ssh(hosts, host, "hostname").stdout for host in hosts.hosts] == ["h1\n", "h2\n"]
    first.docker("create", "--name", "only-here", IMAGE, "true")
    assert (first.containers(), second.containers()) == (["only-here"], [])
    first.docker("rm", "only-here")
    assert "Docker Compose version" in ssh(hosts, first, "docker compose version").stdout


def test_containers_of_two_hosts_talk_over_the_network(hosts: Fleet) -> None:
    first, second = hosts.hosts
    serve = "import socket; s = socket.create_server(('', 4000)); s.accept()[0].sendall(b'hello')"
    ask = f"import socket; print(socket.create_connection(('{first.address}', 4000), 60).recv(9))"
    first.docker("run", "-d", "--rm", "--net=host", "--name", "server", IMAGE, "python3", "-c", serve)
    eventually(lambda: ":4000 " in first.run("ss", "-ltn"))
    assert second.docker("run", "--rm", "--net=host", IMAGE, "python3", "-c", ask) == "b'hello'\n"
    eventually(lambda: first.containers() == [])


def test_a_pulled_cable_silences_a_host_and_ends_nothing_on_it(hosts: Fleet) -> None:
    host = hosts[1]
    host.docker("run", "-d", "--rm", "--net=host", "--name", "stays", IMAGE, "sleep", "600")
    host.pull_cable()
    told = ssh(hosts, host, "true", timeout=1).stderr
    assert "timed out" in told or "No route to host" in told  # the latter if ssh has stood still
    assert host.containers() == ["stays"]
    host.plug_cable()
    assert ssh(hosts, host, "true").returncode == 0
    host.docker("rm", "-f", "stays")


def test_a_host_that_lost_power_comes_back_without_what_ran_on_it(hosts: Fleet) -> None:
    host = hosts[1]
    host.docker("run", "-d", "--net=host", "--name", "ran", IMAGE, "sleep", "600")
    (host.home / "kept").write_text("on disk")
    host.power_off()
    assert ssh(hosts, host, "true", timeout=1).returncode == 255
    host.power_on()
    assert ssh(hosts, host, "cat", "kept").stdout == "on disk"
    assert host.docker("inspect", "-f", "{{.State.Running}}", "ran") == "false\n"
    host.docker("rm", "ran")
    (host.home / "kept").unlink()


def test_an_engine_that_was_killed_can_be_started_again(hosts: Fleet) -> None:
    host = hosts[0]
    host.kill_engine()
    assert "Cannot connect to the Docker daemon" in ssh(hosts, host, "docker", "ps").stderr
    host.start_engine()
    host.wait_for_engine()
    assert ssh(hosts, host, "docker", "ps").returncode == 0


def test_a_new_host_key_is_refused(hosts: Fleet) -> None:
    host = hosts[0]
    host.kill_sshd()
    host.new_host_key()
    host.start_sshd()
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in ssh(hosts, host, "true").stderr
    hosts.write_ssh_config()
    assert ssh(hosts, host, "true").returncode == 0


def test_a_user_in_the_group_docker(hosts: Fleet) -> None:
    done = ssh(hosts, hosts[0], "id -un; docker ps -q; touch mine; ls -d ~/mine", user=USER)
    assert (done.returncode, done.stdout) == (0, f"{USER}\n{hosts[0].dir / USER}/mine\n")
    (hosts[0].dir / USER / "mine").unlink()


def test_a_host_behind_another(hosts: Fleet) -> None:
    host = hosts[1]
    host.kill_sshd()
    host.behind = host.hidden
    host.start_sshd()
    hosts.write_ssh_config()
    assert ssh(hosts, host, "hostname").stdout == "h2\n"
    with pytest.raises(subprocess.CalledProcessError):
        sh("ping", "-c1", "-W1", host.hidden)
    host.kill_sshd()
    host.behind = None
    host.start_sshd()
    hosts.write_ssh_config()


def test_a_slow_link(hosts: Fleet) -> None:
    hosts[0].slow_link("400kbit")
    try:
        assert timed(hosts) > 1.5  # 100 kB take two seconds, and a fraction of one otherwise
    finally:
        hosts[0].slow_link(None)


def timed(hosts: Fleet) -> float:
    begin = time.monotonic()
    assert len(ssh(hosts, hosts[0], "head -c 100000 /dev/urandom | base64 -w0").stdout) > 100_000
    return time.monotonic() - begin


@pytest.fixture(scope="module")
def odd(can_have_fleet: None) -> Iterator[Fleet]:
    """Hosts that nobody needs as they were."""
    with fleet(2, engines=False) as made:
        yield made


def test_a_full_disk(odd: Fleet) -> None:
    host = odd[1]
    host.clear()
    host.small_disk(16)
    host.start_sshd()
    host.fill_disk()
    assert "No space left on device" in ssh(odd, host, "echo x > full").stderr


def test_a_clock_that_is_ahead(odd: Fleet) -> None:
    host = odd[0]
    host.kill_sshd()
    host.skew = 90.0
    host.start_sshd()
    before = time.time()
    there = float(ssh(odd, host, "date +%s.%N").stdout)
    assert before + 89 < there < time.time() + 91


KILLED = """\
import sys, time
from tests.fleet.fleet import fleet
with fleet(1, engines=False) as made:
    print(made.dir, made.bridge, made[0].namespace, flush=True)
    time.sleep(600)
"""


def test_the_next_fleet_removes_those_whose_makers_were_killed(odd: Fleet) -> None:
    """Bridge, hosts and files; one whose maker lives stays."""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, cwd=root) as maker:
        assert maker.stdout is not None
        folder, bridge, namespace = maker.stdout.readline().split()
        remove_dead()
        assert (Path(folder).exists(), bridge in sh("ip", "link"), namespace in sh("ip", "netns")) == (True,) * 3
        maker.kill()
        maker.wait()

    def is_gone() -> bool:
        remove_dead()  # unless another process of tests is about to, or looks at it
        left = Path(folder).exists(), f"{bridge}:" in sh("ip", "link"), namespace in sh("ip", "netns")
        return not any(left)

    promptly(is_gone)
    assert ssh(odd, odd[0], "hostname").stdout == "h1\n"


def test_what_a_test_leaves_on_hosts_is_told_and_made_again(can_have_fleet: None) -> None:
    with fleet(0, engines=False) as made:
        shared = Shared(made)
        hosts = shared.first(2)
        shared.begin()
        assert shared.left(0) == []
        (hosts[0].home / "mine").touch()
        hosts[1].pull_cable()
        hosts[1].start("sleeper", ["sleep", "600"])
        subprocess.run(["ip", "addr", "del", f"10.{made.network}.0.254/24", "dev", made.bridge], check=True)
        found = shared.left(0)
        assert [line.partition(" is ")[0] for line in found] == [
            "h1: its files",
            "h2: what runs",
            "h2: its cable",
            "the fleet: the controller's address",
        ]
        shared.put_back(found)
        assert shared.left(0) == []
        assert [ssh(made, host, "hostname; ls").stdout for host in hosts.hosts] == ["h1\n", "h2\n"]
