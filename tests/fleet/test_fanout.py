"""Many hosts side by side: a bad one costs the others nothing but its own timeout."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools import commands

from .light import LightFleet, light_fleet

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
