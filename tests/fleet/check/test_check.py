"""`check`: each thing that can be wrong with a host is found, and the message says what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.machine import IMAGE, sh
from tests.tools.waiting import eventually


@pytest.fixture
def jobs(tmp_path: Path, hosts: Fleet) -> Iterator[Jobs]:
    made = Jobs(tmp_path, hosts)
    yield made
    made.run("down", *made.where)
    assert (made.containers(), made.files()) == ([[], []], [])


def check(jobs: Jobs, *args: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and all findings that are not `ok`."""
    done = jobs.run("check", *jobs.where, "-o", "json", *args)
    report = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0)
    return done.returncode, [finding for finding in report["findings"] if finding["verdict"] != "ok"]


def found(jobs: Jobs, *args: str) -> list[tuple[str, str, str]]:
    """Return host, check and code of what is wrong; every one has a remedy."""
    _, findings = check(jobs, *args)
    assert [finding for finding in findings if not finding["hint"]] == []
    return [(finding["host"], finding["check"], finding["code"]) for finding in findings]


def test_all_is_well(jobs: Jobs) -> None:
    done = jobs.run("check", *jobs.where)
    assert (done.returncode, done.stderr.endswith(" verdicts on 2 hosts: all fit\n")) == (0, True), done.stderr
    here = jobs.run("check", "job.yaml")  # without hosts, of this machine
    assert (here.returncode, here.stderr.endswith("1 verdict on 1 host: all fit\n")) == (0, True), here.stderr


def test_without_a_job(jobs: Jobs) -> None:
    (jobs.code / "job.yaml").rename(jobs.code / "other.yaml")
    assert check(jobs) == (0, [])


def test_a_dead_host_and_a_dead_engine(jobs: Jobs) -> None:
    jobs.fleet[0].pull_cable()
    jobs.fleet[1].kill_engine()
    try:
        assert found(jobs) == [("h1", "ssh", "unreachable"), ("h2", "engine", "docker-down")]
    finally:
        jobs.fleet[0].plug_cable()
        jobs.fleet[1].start_engine()
        jobs.fleet[1].wait_for_engine()


def test_the_compose_plugin(jobs: Jobs) -> None:
    host = jobs.fleet[1]
    host.compose = False
    host.install_docker()
    try:
        assert found(jobs) == [("h2", "compose", "compose-missing")]
        assert check(jobs, "--target", "ssh") == (0, [])
    finally:
        host.compose = True
        host.install_docker()


def test_images(jobs: Jobs) -> None:
    jobs.spec(SPEC.replace(IMAGE, "jobctl-fleet:other"))
    assert found(jobs) == [(host, "image", "image-missing") for host in ("h1", "h2")]
    jobs.fleet[1].docker("tag", IMAGE, "jobctl-fleet:other")
    assert check(jobs) == (0, [])
    jobs.spec(SPEC.replace(IMAGE, "127.0.0.1:9/no/such:1").replace("pull: never", "pull: missing"))
    codes = found(jobs)
    assert codes == [(host, "image", "registry-unreachable") for host in ("h1", "h2")]
    jobs.spec(SPEC.replace(IMAGE, "registry.invalid/no/such:1").replace("pull: never", "pull: missing"))
    assert found(jobs) == [(host, "image", "registry-unreachable") for host in ("h1", "h2")]
    jobs.fleet[0].docker("tag", IMAGE, "jobctl-fleet:alike")
    name = sh("/usr/bin/docker", "-H", f"unix://{jobs.fleet[1].socket}", "create", IMAGE, "true").strip()
    jobs.fleet[1].docker("commit", name, "jobctl-fleet:alike")
    jobs.fleet[1].docker("rm", name)
    jobs.spec(SPEC.replace(IMAGE, "jobctl-fleet:alike"))
    assert [(check, code) for _, check, code in found(jobs)] == [("image", "image-differs")]
    jobs.fleet[0].docker("rmi", "jobctl-fleet:alike")
    jobs.fleet[1].docker("rmi", "jobctl-fleet:alike", "jobctl-fleet:other")


def test_another_interpreter(jobs: Jobs) -> None:
    jobs.spec(SPEC + "container: {{python: /opt/none/python}}\n")
    assert found(jobs) == [(host, "container", "python-missing") for host in ("h1", "h2")]


def test_devices_of_another_job(jobs: Jobs) -> None:
    """And its service, whose label is not a number."""
    labels = ("--label", "jobctl.job=busy", "--label", "jobctl.owner=ann@desk")
    node = ("--label", "jobctl.node=0", "--label", "jobctl.devices=npu:1,npu:2")
    command = ("run", "-d", "--net=host", *labels)
    name = jobs.fleet[1].docker(*command, *node, IMAGE, "sleep", "1000").strip()
    etcd = jobs.fleet[1].docker(*command, "--label", "jobctl.node=etcd-0", IMAGE, "sleep", "1000").strip()
    try:
        jobs.spec(SPEC + "devices: npu:2\n")
        # And there are none here: a container with them cannot even start, or sees none.
        missing = {("h1", "devices", "driver-missing"), ("h2", "devices", "driver-missing")}
        assert {("h2", "idle", "devices-busy"), *missing} <= set(found(jobs))
        listing = jobs.ok("list", *jobs.where, "-o", "json")
        assert json.loads(listing)["hosts"][1]["jobs"] == [
            {"job": "busy", "node": 0, "name": None, "owner": "ann@desk", "devices": ["npu:1", "npu:2"]},
            {"job": "busy", "node": None, "name": "etcd-0", "owner": "ann@desk", "devices": []},
        ]
    finally:
        jobs.fleet[1].docker("rm", "-f", name, etcd)


def test_several_things_at_once(jobs: Jobs) -> None:
    """A port that is taken, too little memory, and links of different sizes."""
    jobs.spec(SPEC + "rendezvous: {{port: 22345}}\nresources: {{memory: 900g, shm_size: 950g}}\n")
    jobs.fleet[0].start("listener", ["python3", "-m", "http.server", "22345"])
    eventually(lambda: ":22345 " in jobs.fleet[0].run("ss", "-ltn"))
    inside = ("ip", "-n", jobs.fleet[1].namespace, "link", "set", "eth0", "mtu")
    before = sh("ip", "-n", jobs.fleet[1].namespace, "-o", "link", "show", "eth0").split(" mtu ")[1].split()[0]
    sh(*inside, "1300")
    try:
        every = found(jobs)
        assert [one for one in every if one[1] == "ports"] == [("h1", "ports", "port-taken")]
        assert [code for _, check, code in every if check == "interface"] == ["mtu-differs"]
        assert set(every) >= {("h1", "memory", "memory-low"), ("h1", "shm", "shm-large")}
    finally:
        sh(*inside, before)
        listener = jobs.fleet[0].processes.pop("listener")
        listener.kill()
        listener.wait()


def test_hosts_that_cannot_reach_each_other(jobs: Jobs) -> None:
    (jobs.code / "hosts.txt").write_text(f"h1 addr={jobs.fleet[0].address}\nh2 addr=10.255.255.1\n")
    assert set(found(jobs)) == {  # and nothing of h1, which is not to blame
        ("h2", "network", "address-wrong"),
        ("h2", "interface", "address-wrong"),
    }


def test_interface_and_names(jobs: Jobs) -> None:
    (jobs.code / "hosts.txt").write_text(f"h1 addr={jobs.fleet[0].address} interface=ib7\nh2\n")
    codes = found(jobs)
    assert ("h1", "interface", "no-such-interface") in codes
    assert ("h1", "names", "name-unresolved") in codes


def test_a_dns_server_that_does_not_answer(jobs: Jobs, tmp_path: Path) -> None:
    server = jobs.fleet[1]
    server.start(
        "dns", ["python3", "-c", "import socket, time; s = socket.socket(type=2); s.bind(('', 53)); time.sleep(600)"]
    )
    eventually(lambda: ":53 " in server.run("ss", "-lun"))
    (tmp_path / "resolv.conf").write_text(f"nameserver {server.address}\n")
    spec = SPEC + f'volumes: ["{tmp_path}/resolv.conf:/etc/resolv.conf:ro"]\n'
    try:
        jobs.spec(spec)
        assert found(jobs) == [(host, "names", "dns-silent") for host in ("h1", "h2")]
        jobs.spec(spec + 'env: {{RES_OPTIONS: "timeout:1 attempts:1"}}\n')
        assert found(jobs) == []
    finally:
        listener = server.processes.pop("dns")
        listener.kill()
        listener.wait()


def test_volumes_and_their_rights(jobs: Jobs, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    jobs.spec(SPEC + f'volumes: ["{tmp_path}/none:/none"]\n')
    assert found(jobs) == [(host, "volumes", "no-such-path") for host in ("h1", "h2")]
    jobs.spec(SPEC + f'volumes: ["{closed}:/closed"]\ncontainer: {{{{user: "4242:4242"}}}}\n')
    assert {("h1", "volumes", "path-no-permission"), ("h1", "checkpoint", "path-no-permission")} <= set(found(jobs))


def test_a_checkpoint_directory_that_is_not_shared(jobs: Jobs) -> None:
    jobs.spec(SPEC.replace("{checkpoints}", "/root/checkpoints"))  # each host has a home of its own
    assert found(jobs) == [(host, "checkpoint", "checkpoint-not-shared") for host in ("h1", "h2")]
    up = jobs.up(check=True)
    assert (up.returncode, jobs.containers()) == (3, [[], []]), up.stderr
    for host in jobs.fleet.hosts:
        (host.home / "checkpoints").rmdir()


def test_a_work_directory_that_is_shared(jobs: Jobs, tmp_path: Path) -> None:
    shared = tmp_path / "work"
    jobs.fleet.hosts_file(jobs.code / "hosts.txt", f"dir={shared}")
    assert found(jobs) == [(host, "work-directory", "dir-shared") for host in ("h1", "h2")]
    jobs.fleet.hosts_file(jobs.code / "hosts.txt", "dir=/proc/none")
    assert found(jobs) == [(host, "work-directory", "dir-not-writable") for host in ("h1", "h2")]


def test_devices_that_nobody_has_counted(jobs: Jobs) -> None:
    jobs.spec(SPEC + "devices: gpu\n")
    render = jobs.run("render", "--hosts", "hosts.txt")
    assert (render.returncode, "`check`, `plan` and `up` count them" in render.stderr) == (2, True), render.stderr
    for command in ("plan", "up"):
        done = jobs.run(command, *jobs.where)
        assert (done.returncode, "no host has a device of kind `gpu`" in done.stderr) == (3, True), done.stderr
    assert {(host, name) for host, name, _ in found(jobs)} == {("h1", "container"), ("h2", "container")}


def test_a_limit_that_the_engine_refuses(jobs: Jobs) -> None:
    jobs.spec(SPEC + "resources: {{ulimits: {{rtprio: 99999999}}}}\n")
    _, findings = check(jobs)
    assert {finding["check"] for finding in findings} == {"container"}


def test_clock_disk_and_a_user_without_rights(can_have_fleet: None, tmp_path: Path) -> None:
    with fleet(2) as hosts:
        skewed, small = hosts.hosts
        skewed.skew = 60.0  # more than to look at it takes, for which nobody knows when it told its time
        skewed.kill_sshd()
        skewed.start_sshd()
        small.clear()
        small.small_disk(150)
        small.install_docker()
        small.start_sshd()
        small.start_engine()
        small.wait_for_engine()
        small.fill_disk()
        jobs = Jobs(tmp_path, hosts)
        codes = found(jobs)
        assert ("h2", "disk", "disk-low") in codes
        assert [code for host, check, code in codes if check == "clock"] == ["clock-skew"]
        text = hosts.ssh_config.read_text()
        hosts.ssh_config.write_text(text.replace("User root", "User ml", 1))
        os.chmod(skewed.socket, 0o600)
        assert ("h1", "engine", "docker-no-permission") in found(jobs)
