"""A run ends with the same result, bit for bit, whatever fails meanwhile, and no node ever trains twice at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.recovery.ranks import as_script, how_begun
from tests.fleet.recovery.run import EVERY, LONG, TIMEOUT, Run, made_and_removed, trainer
from tests.tools.waiting import eventually


@pytest.fixture(scope="module")
def three(hosts_of: Callable[[int], Fleet]) -> Fleet:
    return hosts_of(3)


@pytest.fixture
def small(three: Fleet) -> Iterator[Path]:
    """A file system of one megabyte that the hosts see too."""
    yield three.small
    for path in three.small.iterdir():
        path.unlink()


@pytest.fixture
def run(tmp_path: Path, three: Fleet) -> Iterator[Callable[..., Run]]:
    yield from made_and_removed(Run, tmp_path, three)


def test_what_dies_on_a_host_is_started_again_there(run: Callable[..., Run]) -> None:
    """A process, a launcher, a container, and the engine, one after the other: each time from the last checkpoint.

    Before that, its cable is out for less than the timeout, which changes nothing.
    """
    job = run(change=LONG)
    job.begin()
    job.fleet[1].pull_cable()
    job.tells("node 1 on h2 is not heard")
    job.fleet[1].plug_cable()
    eventually(lambda: job.phase() == "running")
    assert job.status()["generation"] == 1
    at = time.time()
    os.kill(trainer(job.fleet[1]), signal.SIGKILL)
    job.runs(2)
    assert (job.resumed()[0], job.resumed()[1] >= 2 * EVERY) == (0, True)
    inside = "import os; os.kill(next(int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) > 1), 9)"
    job.fleet[1].docker("exec", "jobctl-counter-1", "python3", "-c", inside, check=False)
    job.runs(3)
    job.fleet[1].docker("kill", "jobctl-counter-1")
    job.runs(4)
    killed = next(e for e in job.events() if e["event"] == "failure" and "its launcher was killed" in e["message"])
    assert at <= time.mktime(time.strptime(killed["time"][:19], "%Y-%m-%dT%H:%M:%S")) + 1
    job.fleet[1].kill_engine()
    job.fleet[1].start_engine()
    job.fleet[1].wait_for_engine()
    state = job.ends_well()
    assert [node["host"] for node in state["nodes"]] == ["h1", "h2"]
    assert job.resumed() == sorted(job.resumed())


def test_a_host_is_lost_for_good_and_a_spare_takes_over(run: Callable[..., Run]) -> None:
    job = run(spare=False)
    job.begin()
    with (job.code / "hosts.txt").open("a") as hosts:  # which lies in the folder of the code
        hosts.write(f"h3 addr={job.fleet[2].address} spare\n")
    up = job.up()
    added = "prepare h3: a spare that has not got what a node needs"
    assert (up.returncode, up.stderr.splitlines()[0], job.status()["generation"]) == (0, added, 1)
    (job.checkpoints / "end-0").touch()  # so that none is left to tell that it does not answer node 1
    eventually(lambda: [one["state"] for one in job.reports()][:1] == ["succeeded"])
    eventually(lambda: job.status()["nodes"][0]["state"] == "exited")
    job.fleet[1].power_off()
    eventually(lambda: job.happened("moved"))
    state = job.ends_well()
    job.fleet[1].power_on()  # each command would wait for it for eight seconds
    assert (state["nodes"][1]["host"], state["generation"], job.resumed()[-1] >= 2 * EVERY) == ("h3", 2, True)
    moved = next(e for e in job.events() if e["event"] == "moved")
    assert (moved["node"], moved["host"], moved["from"]) == (1, "h3", "h2")
    assert job.up().returncode == 0  # and nothing is moved back
    assert job.status()["nodes"][1]["host"] == "h3"


def test_a_host_is_cut_off_for_good_and_its_node_does_not_train_twice(run: Callable[..., Run]) -> None:
    job = run()
    job.begin()
    job.fleet[1].pull_cable()
    eventually(lambda: job.happened("moved"))
    fenced = job.fleet[1].home / ".jobctl" / "h2" / "counter" / "node-1" / "report.json"
    eventually(lambda: json.loads(fenced.read_text())["state"] == "fenced")
    job.fleet[1].plug_cable()
    job.tells("remove node 1 on h2: it runs on h3")
    assert job.ends_well()["nodes"][1]["host"] == "h3"


@pytest.mark.release("tests/fleet/access/test_getting_in.py::test_a_forwarded_port_follows_its_node")
def test_a_broken_host_is_left(run: Callable[..., Run]) -> None:
    """It can be reached: what runs there ends before the node begins elsewhere."""
    job = run(change=(LONG[0], LONG[1] + ", rules: [{{exit: 9, do: exclude_host}}]"))
    job.begin()
    (job.checkpoints / "fail-1").touch()
    state = job.ends_well()
    assert (state["nodes"][1]["host"], state["generation"]) == ("h3", 2)
    assert job.fleet[1].containers() == []


def test_without_a_spare_it_waits_until_the_host_is_back(run: Callable[..., Run]) -> None:
    """A host that is cut off and fences itself, and one that loses power, for a moment."""
    job = run(spare=False)
    job.begin()
    job.fleet[1].pull_cable()
    job.tells("there is no other host for it")
    eventually(lambda: [one["state"] for one in job.reports()][1:] == ["fenced"])
    job.fleet[1].plug_cable()
    number = job.trains(1, after=1)["generation"]
    job.fleet[1].power_off()
    job.fleet[1].power_on()
    job.trains(1, after=number)
    state = job.ends_well()
    assert [node["host"] for node in state["nodes"]] == ["h1", "h2"]


def test_an_elastic_job_shrinks_and_grows_again(run: Callable[..., Run]) -> None:
    job = run(spare=False, change=("nodes: 2", "nodes: '1:2'"))
    as_script(job)
    job.begin()
    job.fleet[1].pull_cable()
    eventually(lambda: len(job.order()["members"]) == 1)
    state = job.trains(1)
    assert [node["node"] for node in state["nodes"] if node["state"] == "running"] == [0]
    assert state["replicas"] == "1[1:2]"
    assert "of 1 from" in job.run("logs", "--node", "0").stdout
    job.fleet[1].plug_cable()
    eventually(lambda: len(job.order()["members"]) == 2)
    state = job.trains(1)
    assert [node["node"] for node in state["nodes"] if node["state"] == "running"] == [0, 1]
    assert how_begun(job.events, state["generation"]) == ("supervisor", True, None)
    job.ends_well()
    assert job.resumed()[-1] >= 2 * EVERY


@pytest.mark.release("tests/fleet/campaign/test_campaign.py::test_it_trains_on_while_the_controller_is_off")
def test_the_controller_is_not_there_for_a_while(run: Callable[..., Run]) -> None:
    """It is cut off, however long (JOBCTL_TEST_CUT: seconds), then its supervisor is killed: launchers hear each other.

    They restart what fails, too. A supervisor that is started later knows of that, takes over, and restarts what fails
    then.
    """
    cut = float(os.environ.get("JOBCTL_TEST_CUT", TIMEOUT + 4))
    job = run()
    job.begin()
    uplink = job.fleet.bridge
    address = subprocess.run(["ip", "-o", "-4", "addr", "show", uplink], capture_output=True, text=True, check=True)
    mine = address.stdout.split()[3]
    subprocess.run(["ip", "addr", "del", mine, "dev", uplink], check=True)
    try:
        time.sleep(cut)
    finally:
        subprocess.run(["ip", "addr", "add", mine, "dev", uplink], check=True)
    eventually(lambda: (state := job.status())["phase"] == "running" and state["supervised"])
    os.kill(job.supervisor_pid(), signal.SIGKILL)
    time.sleep(TIMEOUT + 1)
    assert (job.status()["generation"], job.phase()) == (1, "running")
    os.kill(trainer(job.fleet[1]), signal.SIGKILL)
    job.runs(2)
    assert job.status()["supervised"] is False
    supervisor = job.start("supervise")
    eventually(lambda: job.status()["supervised"])
    began, number = [(2, "")], 2
    while began[-1] != (number, "supervisor") and number < 6:  # launchers are quicker than one that stands still
        number += 1
        os.kill(trainer(job.fleet[1]), signal.SIGKILL)
        job.runs(number)
        began = [(event["generation"], event["by"]) for event in job.events() if event["event"] == "generation"]
    assert (began[0], began[-1]) == ((2, "launchers"), (number, "supervisor"))
    assert (job.ends_well()["generation"], supervisor.wait(120)) == (number, 0)


def test_a_drill_of_a_lost_host(run: Callable[..., Run]) -> None:
    job = run()
    job.begin()
    done = job.run("drill", "--host", "--yes", "--node", "1", "-o", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["victim"], report["host"], report["generation"]) == (0, "host", "h2", 1), (
        done.stderr
    )
    assert report["seconds"]["detected"] > TIMEOUT / 2  # it may have been heard for the last time long before
    assert job.status()["nodes"][1]["host"] == "h3"
    assert not (job.checkpoints / "TWICE").exists()


@pytest.mark.release("tests/local/test_faults.py::test_a_full_disk_is_waited_for")
def test_the_disk_of_the_checkpoints_is_full_for_a_while(small: Path, run: Callable[..., Run]) -> None:
    """It fails at the same step each time, and that is no bug: it goes on once there is room."""
    job = run()
    job.checkpoints.rmdir()
    job.checkpoints.symlink_to(small)
    spec = job.code / "job.yaml"
    spec.write_text(spec.read_text().replace(str(job.checkpoints), str(small)))
    job.begin()
    with contextlib.suppress(OSError), (small / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 512)
    eventually(lambda: len(job.happened("failure")) >= 2)
    (small / "filler").unlink()
    assert job.ends_well()["generation"] >= 3


def test_a_supervisor_that_can_write_nothing_leaves_what_fails_to_the_launchers(run: Callable[..., Run]) -> None:
    job = run()
    job.begin()
    kept = job.directory / "state/jobs/counter/newest.json"
    kept.unlink()
    kept.mkdir()
    try:
        os.kill(trainer(job.fleet[1]), signal.SIGKILL)
        job.runs(2)
    finally:
        kept.rmdir()
    assert job.happened("waiting")[0]["message"] == f"cannot act: [Errno 21] Is a directory: '{kept}'"
    assert job.ends_well()["generation"] == 2
    assert [event["by"] for event in job.events() if event["event"] == "generation"] == ["launchers"]


def test_a_rank_stands_still(run: Callable[..., Run]) -> None:
    job = run(change=("host_timeout", "hang_timeout: 3s, host_timeout"))
    job.begin()
    (job.checkpoints / "stop-1").touch()
    job.tells("no progress for 3 s")
    (job.checkpoints / "stop-1").unlink()
    job.ends_well()


@pytest.mark.release("tests/fleet/recovery/test_nobody_watching.py::test_another_controller_sees_the_whole_story")
def test_containers_and_hosts_come_back_with_nobody_watching(run: Callable[..., Run]) -> None:
    """A container is killed, then a host loses power: the engine starts what ran there, and the launchers go on."""
    job = run(spare=False, change=LONG)
    (job.checkpoints / "hold").touch()
    assert job.up("--no-supervise").returncode == 0
    eventually(lambda: job.step() > 2 * EVERY)
    os.kill(int(job.fleet[1].docker("inspect", "-f", "{{.State.Pid}}", "jobctl-counter-1")), signal.SIGKILL)
    job.runs(2)
    job.fleet[1].power_off()
    job.fleet[1].power_on()
    job.runs(3)
    state = job.ends_well()
    assert (state["generation"], state["supervised"], state["phase"]) == (3, False, "succeeded")
    resumed = job.resumed()
    assert (resumed[0], len(resumed), min(resumed[1:]) >= 2 * EVERY) == (0, 3, True)
