"""Many hosts side by side: a bad one costs the others nothing but its own timeout."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from paramiko.packet import Packetizer

from jobctl.jobspec.operations.inspect.metrics import MetricsSource
from tests.fleet.light import LightFleet, light_fleet
from tests.tools import commands
from tests.tools.waiting import eventually

SIZE = 12
SPEC = """\
name: wide
framework: torch
image: stub:1
pull: never
command: [python3, train.py]
per: node
nodes: {nodes}
stop_grace_period: 1s
"""


@pytest.fixture(scope="module")
def wide(can_have_fleet: None) -> Iterator[LightFleet]:
    with light_fleet(SIZE) as made:
        yield made


def jobctl(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `jobctl` in a folder."""
    environ = {**os.environ, "JOBCTL_STATE_DIR": str(directory / "state"), "NO_COLOR": "1"}
    return commands.run(args, directory, environ, 300)


def test_a_look_again_is_three_questions_to_a_host(
    wide: LightFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files, its containers and how busy it is. Messages are what metrics cost; commands take three times as many."""
    (tmp_path / "job.yaml").write_text(SPEC.format(nodes=SIZE))
    wide.hosts_file(tmp_path / "hosts.txt")
    up = ("up", "--hosts", "hosts.txt", "--ssh-config", str(wide.ssh_config), "--skip-check", "--no-supervise")
    assert jobctl(tmp_path, *up).returncode == 0
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    sent: list[Any] = []
    plain: Any = Packetizer.send_message

    def send(packetizer: Packetizer, data: Any) -> None:
        sent.append(data)
        plain(packetizer, data)

    monkeypatch.setattr(Packetizer, "send_message", send)
    source = MetricsSource(None, live=True)
    try:
        source.clock = count(step=60.0).__next__

        def hosts_seen() -> int:
            sent.clear()
            return source.text().count("\njobctl_host_load{")

        # In two looks connections are made. A host that stands still is left out of a look, and is asked again.
        eventually(lambda: [hosts_seen() for _ in range(3)] == [SIZE] * 3)
        assert SIZE * 3 <= len(sent) <= SIZE * 4
    finally:
        source.close()
        assert jobctl(tmp_path, "down").returncode == 0


def test_three_bad_hosts_of_many(wide: LightFleet, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC.format(nodes=SIZE))
    wide.hosts_file(tmp_path / "hosts.txt")
    up = ("up", "--hosts", "hosts.txt", "--ssh-config", str(wide.ssh_config), "--skip-check", "--no-supervise")
    done = jobctl(tmp_path, *up)
    assert (done.returncode, wide.started()) == (0, SIZE), done.stderr
    status = jobctl(tmp_path, "status", "-o", "json")
    assert [node for node in json.loads(status.stdout)["nodes"] if node["state"] != "running"] == []
    assert jobctl(tmp_path, "down").returncode == 0
    assert wide.started() == 0
    wide.refusing, wide.hanging = {5}, {7}
    wide.restart_sshd()
    wide.switch_off(11)
    done = jobctl(tmp_path, *up)
    told = sorted(line.split(": ", 2)[1:] for line in done.stderr.splitlines() if line.startswith("error: l"))
    assert (done.returncode, wide.started()) == (4, SIZE - 3), done.stderr
    assert [host for host, _ in told] == ["l11", "l5", "l7"]
    assert "refuses the keys" in told[1][1]
    # Once given up it is not asked again: each time would cost all others as long.
    assert wide.hung() == 1
