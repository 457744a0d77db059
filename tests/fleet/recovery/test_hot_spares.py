"""Hot spares on hosts: a node that has lost its host becomes what already waits on a spare."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.jobs import read
from tests.fleet.recovery.run import SPEC, Run, begins_with_a_spare
from tests.tools.waiting import eventually


class Three(Run):
    """A job on h1, h2 and h3, with h4 to spare."""

    def __init__(self, directory: Path, made: Fleet) -> None:
        super().__init__(directory, made, change=("nodes: 2", "nodes: 3"))
        made.hosts_file(self.code / "hosts.txt")
        lines = (self.code / "hosts.txt").read_text().splitlines()
        (self.code / "hosts.txt").write_text("\n".join([*lines[:3], f"{lines[3]} spare"]) + "\n")


@pytest.fixture
def three(tmp_path: Path, hosts_of: Callable[[int], Fleet]) -> Iterator[Three]:
    made = Three(tmp_path, hosts_of(4))
    (made.checkpoints / "hold").touch()
    yield made
    if "sshd" not in made.fleet[2].processes:
        made.fleet[2].power_on()
    print(made.run("events").stdout)
    down = made.run("down", *made.where)
    assert (down.returncode, made.containers(), made.files()) == (0, [[]] * 4, []), down.stderr


@pytest.fixture
def job(target: str, tmp_path: Path, hosts_of: Callable[[int], Fleet]) -> Iterator[Run]:
    """A job on h1 and h2 that trains, with h3 to spare."""
    made = Run(tmp_path, hosts_of(3))
    (made.checkpoints / "hold").touch()
    up = made.up("--target", target)
    assert up.returncode == 0, up.stderr
    yield made
    if "sshd" not in made.fleet[1].processes:
        made.fleet[1].power_on()
    print(made.run("events").stdout)
    down = made.run("down", *made.where)
    assert (down.returncode, made.containers(), made.files()) == (0, [[], [], []], []), down.stderr


def spares(job: Run) -> list[dict[str, Any]] | None:
    """What `status` tells of hosts without a node."""
    found: list[dict[str, Any]] | None = job.status().get("spares")
    return found


def unchanged(job: Run) -> bool:
    """Say whether `up` has nothing to do."""
    return job.run("plan").returncode == 0


def container(job: Run) -> str:
    """The container on the spare's host."""
    name: str = job.fleet[2].docker("ps", "--no-trunc", "--format", "{{.Names}} {{.ID}}").strip()
    return name


@pytest.mark.parametrize(
    "target",
    [
        "compose",
        pytest.param(
            "ssh",
            marks=pytest.mark.release(
                "tests/fleet/recovery/test_hot_spares.py::test_a_spare_that_a_node_has_left_waits_again[ssh]"
            ),
        ),
    ],
)
def test_a_node_moves_into_the_container_that_waits_on_a_spare(job: Run) -> None:
    eventually(lambda: spares(job) == [{"host": "h3", "state": "ready"}])  # `up` does not wait for it for long
    waits = container(job)
    assert waits.startswith("jobctl-counter-spare ")
    assert unchanged(job)
    eventually(lambda: job.step() > 20)
    job.fleet[1].power_off()
    eventually(lambda: job.happened("moved"))
    state = eventually(lambda: (seen := job.status())["phase"] == "running" and seen)
    assert [(node["host"], node["state"]) for node in state["nodes"]] == [("h1", "running"), ("h3", "running")]
    assert (container(job), state["nodes"][1]["container"]) == (waits, waits.split()[1])
    assert (state["generation"], spares(job)) == (2, [])
    assert not [e for e in job.events() if e["event"] == "step" and e.get("host") == "h3" and e.get("node") == 1]
    job.fleet[1].power_on()
    assert job.run("exec", "--node", "1", "--", "sh", "-c", "echo $JOBCTL_LAUNCH").stdout.count('"spare":2') == 1
    eventually(lambda: unchanged(job))  # the host that is back has nothing left of the node
    job.fleet[2].docker("kill", "jobctl-counter-spare")  # which tells its engine to leave it so
    eventually(lambda: job.all_train(generation=3))
    assert job.fleet[2].containers() == ["jobctl-counter-1"]
    state = job.ends_well()
    assert (state["nodes"][1]["host"], job.resumed()[-1] >= 20) == ("h3", True)


def test_launchers_move_a_node_to_a_spare_and_the_next_up_leaves_it_there(three: Three) -> None:
    """Nobody watches: the spare's launcher hears of it from the others, and `up` from their reports."""
    eventually(lambda: begins_with_a_spare(three))
    eventually(lambda: three.step() > 20)
    three.fleet[2].power_off()
    report = three.fleet[3].home / ".jobctl/h4/counter/node-2/report.json"
    eventually(lambda: [one.get("state") for one in read(report)] == ["running"])
    eventually(lambda: three.all_train(after=1))  # the launchers of the other nodes may be later
    state = three.status()
    assert [(node["host"], node["state"]) for node in state["nodes"]] == [(h, "running") for h in ("h1", "h2", "h4")]
    assert (state["phase"], state["supervised"], state["spares"]) == ("running", False, []), state["reason"]
    generation = state["generation"]
    up = three.up()
    assert up.returncode == 0, up.stderr
    state = three.status()
    assert (state["generation"], state["supervised"], state["nodes"][2]["host"]) == (generation, True, "h4")
    assert three.fleet[3].containers() == ["jobctl-counter-spare"]
    three.fleet[2].power_on()
    three.tells("remove node 2 on h3: it runs on h4")
    (three.checkpoints / "hold").unlink()
    assert three.run("wait", "--timeout", "300s").returncode == 0
    assert not (three.checkpoints / "TWICE").exists()


@pytest.mark.parametrize(
    "target",
    [
        "ssh",
        pytest.param(
            "compose",
            marks=pytest.mark.release(
                "tests/fleet/recovery/test_hot_spares.py::test_a_node_moves_into_the_container_that_waits_on_a_spare[compose]"
            ),
        ),
    ],
)
def test_a_spare_that_a_node_has_left_waits_again(job: Run) -> None:
    """Node 1 moves to the spare and back, as each of its hosts is lost in turn. The supervisor sees to the spare."""
    job.fleet[1].power_off()
    eventually(lambda: job.all_train(generation=2))
    job.fleet[1].power_on()
    job.tells("remove node 1 on h2: it runs on h3")
    job.fleet[2].power_off()
    eventually(lambda: job.all_train(generation=3))
    job.fleet[2].power_on()
    job.tells("remove node 1 on h3: it runs on h2")
    eventually(lambda: spares(job) == [{"host": "h3", "state": "ready"}])
    assert job.fleet[2].containers() == ["jobctl-counter-spare"]
    assert [(node["host"], node["state"]) for node in job.status()["nodes"]] == [("h1", "running"), ("h2", "running")]
    assert unchanged(job)


@pytest.mark.release(
    "tests/fleet/files/test_data.py::test_a_user_by_number_writes_where_it_has_to",
    "tests/fleet/recovery/test_hot_spares.py::test_a_node_moves_into_the_container_that_waits_on_a_spare",
)
def test_a_user_by_number_gets_a_node_on_a_spare(tmp_path: Path, hosts_of: Callable[[int], Fleet]) -> None:
    """Whoever logs in is not root, and the container's user is nobody who exists: files of the node are made in advance."""
    made = Run(tmp_path, hosts_of(3))
    config = made.fleet.ssh_config.read_text()
    made.checkpoints = made.fleet.dir / "checkpoints-ml"
    made.checkpoints.mkdir()
    made.checkpoints.chmod(0o777)
    try:
        made.fleet.ssh_config.write_text(config.replace("User root", "User ml"))
        for host in made.fleet.hosts:
            os.chmod(host.socket, 0o660)
        made.spec(SPEC + "container: {{user: '4343:4344'}}\n")
        (made.checkpoints / "hold").touch()
        assert made.up("--target", "ssh").returncode == 0
        eventually(lambda: spares(made) == [{"host": "h3", "state": "ready"}])
        made.fleet[1].pull_cable()
        eventually(lambda: made.happened("moved"))
        work = made.fleet[2].dir / "ml/.jobctl/h3/counter"
        report = eventually(lambda: [one for one in read(work / "node-1/report.json") if one["state"] == "running"])
        assert report[0]["spare"]
        logs = [path for path in (work / "node-1/logs").rglob("*") if path.is_file()]
        assert {path.stat().st_uid for path in logs} == {4343}
        made.fleet[1].plug_cable()
        made.tells("remove node 1 on h2: it runs on h3")
        # What the container's user wrote on h2 stays: no container there names an image any more to remove it with.
        shutil.rmtree(made.fleet[1].dir / "ml/.jobctl/h2/counter/node-1")
        down = made.run("down", *made.where)
        assert down.returncode == 0, down.stderr
        assert [path for host in made.fleet.hosts for path in (host.dir / "ml").glob(".jobctl/**/*")] == []
    finally:
        made.fleet.ssh_config.write_text(config)
        shutil.rmtree(made.checkpoints)
