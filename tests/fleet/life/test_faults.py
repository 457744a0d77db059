"""`up` under faults: once they are gone, one more `up` ends in the wanted state, with nothing twice and no orphan.

JOBCTL_TEST_KILLS, JOBCTL_TEST_CUTS and JOBCTL_TEST_SCHEDULES say how often (CI does it a few times).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import hold_on
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.store.lock import Locked
from jobctl.jobspec.deploy.targets.host_fleet import transport_to
from jobctl.jobspec.spec.hosts import Host as HostLine
from tests.fleet.host import Host
from tests.fleet.jobs import SPEC, Jobs
from tests.tools.waiting import eventually

KILLS = int(os.environ.get("JOBCTL_TEST_KILLS", "3"))
CUTS = int(os.environ.get("JOBCTL_TEST_CUTS", "1"))
SCHEDULES = int(os.environ.get("JOBCTL_TEST_SCHEDULES", "1"))


def is_as_wanted(jobs: Jobs) -> None:
    """One more `up`, and the job runs: a container of each node, each once, and no launcher that knows another run."""
    up = jobs.up("-o", "json")
    assert up.returncode == 0, up.stderr
    state = jobs.trains(1)  # a node runs a moment before its processes are known
    assert jobs.containers() == [["jobctl-counter-0"], ["jobctl-counter-1"]]
    assert jobs.run("plan").returncode == 0
    assert {(node["node"], len(node["processes"])) for node in state["nodes"]} == {(0, 1), (1, 1)}


def test_up_killed_at_any_moment(jobs: Jobs) -> None:
    chance = random.Random(os.environ.get("JOBCTL_TEST_SEED", "1"))
    for number in range(KILLS):
        if number % 4 == 3:
            jobs.run("down")
        (jobs.code / "counter.py").write_text((jobs.code / "counter.py").read_text() + f"# {number}\n")
        process = jobs.begin_up()
        delay = chance.uniform(0.2, 5.0)
        with_time = time.monotonic() + delay
        while process.poll() is None and time.monotonic() < with_time:
            time.sleep(0.01)
        process.kill()
        process.wait()
        is_as_wanted(jobs)


def test_cable_pulled_during_up(jobs: Jobs) -> None:
    chance = random.Random(os.environ.get("JOBCTL_TEST_SEED", "2"))
    for number in range(CUTS):
        if number % 2:
            jobs.run("down")
        (jobs.code / "counter.py").write_text((jobs.code / "counter.py").read_text() + f"# {number}\n")
        victim = chance.choice(jobs.fleet.hosts)
        process = jobs.begin_up()
        time.sleep(chance.uniform(0.3, 4.0))
        victim.pull_cable()
        try:
            process.wait(timeout=400)
        finally:
            victim.plug_cable()
        is_as_wanted(jobs)


def test_engine_killed_during_up(jobs: Jobs) -> None:
    process = jobs.begin_up()
    victim = jobs.fleet[1]
    eventually(lambda: victim.containers() or process.poll() is not None)
    victim.kill_engine()
    process.wait(timeout=400)
    restart_engine(victim)
    is_as_wanted(jobs)


def test_a_container_that_its_engine_has_lost_gives_way_to_the_next(jobs: Jobs) -> None:
    """An engine that is killed just after it started a container does not know that it did; the container runs on."""
    before = is_up(jobs)
    victim = jobs.fleet[1]
    supervisor = jobs.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)  # it would mend this before it is looked at here
    try:
        victim.kill_engine()
        for path in (victim.dir / "data" / "containers").glob("*/config.v2.json"):
            container = json.loads(path.read_text())
            container["State"].update(Running=False, Pid=0, StartedAt="0001-01-01T00:00:00Z")  # as when it was made
            path.write_text(json.dumps(container))
        restart_engine(victim)
        assert victim.docker("ps", "-a", "--format", "{{.State}}").split() == ["created"]
    finally:
        os.kill(supervisor, signal.SIGCONT)
    jobs.trains(after=before)
    is_as_wanted(jobs)
    (container_id,) = victim.docker("ps", "-q", "--no-trunc").split()
    eventually(lambda: living(victim) == [container_id])  # the launcher that was replaced ends when it sees that


def living(host: Host) -> list[str]:
    """Return the ids of the containers whose first process lives, whatever the engine knows."""
    tasks = host.dir / "run" / "containerd" / "daemon" / "io.containerd.runtime.v2.task"
    return [path.parent.name for path in tasks.glob("*/*/init.pid") if is_in(path.parent.name, int(path.read_text()))]


def is_in(container_id: str, pid: int) -> bool:
    """Say whether a process is one of a container: its number may be another one's by now."""
    try:
        return container_id in Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_generation_reaches_a_host_that_was_cut_off_when_it_began(jobs: Jobs) -> None:
    jobs.spec(SPEC + "recovery: {{host_timeout: 8s, max_restarts: 1000}}\n")
    chance = random.Random(os.environ.get("JOBCTL_TEST_SEED", "3"))
    for _ in range(SCHEDULES):
        before = is_up(jobs)
        first, *_, last = jobs.fleet.hosts
        first.docker("rm", "-f", "jobctl-counter-0")
        time.sleep(chance.uniform(0.2, 0.8))
        last.pull_cable()
        time.sleep(chance.uniform(9.0, 13.0))
        last.plug_cable()
        assert jobs.trains(after=before)["supervised"]


def test_a_generation_reaches_a_host_that_cannot_write_when_it_begins(jobs: Jobs) -> None:
    """Launchers hand it on, and keep it in their reports."""
    jobs.spec(SPEC + "recovery: {{host_timeout: 8s, max_restarts: 1000}}\n")
    before = is_up(jobs)
    first, *_, last = jobs.fleet.hosts
    run = next((last.home / ".jobctl").glob("*/counter/run"))
    subprocess.run(["chattr", "+i", str(run)], check=True)
    try:
        first.docker("kill", "jobctl-counter-0")
        assert jobs.trains(after=before)["supervised"]
    finally:
        subprocess.run(["chattr", "-i", str(run)], check=True)
    jobs.ok("plan")


def test_a_change_while_an_engine_restarts(jobs: Jobs) -> None:
    """The engine is told to stop, as systemd does, and is back after some seconds; meanwhile the job is changed."""
    chance = random.Random(os.environ.get("JOBCTL_TEST_SEED", "4"))
    jobs.spec(SPEC + "recovery: {{host_timeout: 8s, max_restarts: 1000}}\n")
    before = is_up(jobs)
    for number in range(SCHEDULES):
        jobs.spec(SPEC + f"recovery: {{{{host_timeout: 8s, max_restarts: 1000}}}}\nenv: {{{{CHANGE: '{number}'}}}}\n")
        victim = jobs.fleet.hosts[-1]
        victim.stop_engine()
        time.sleep(chance.uniform(0.0, 4.0))
        up = jobs.begin_up()
        time.sleep(chance.uniform(2.0, 10.0))
        restart_engine(victim)
        up.wait(400)
        out, err = up.printed()
        assert up.returncode in (0, 4), err
        if up.returncode == 4:
            assert victim.name in err
        assert jobs.trains(after=before)["supervised"]
        eventually(lambda: jobs.run("plan").returncode == 0)
        before = jobs.order()["number"]
        shown = [h.docker("exec", f"jobctl-counter-{n}", "env") for n, h in enumerate(jobs.fleet.hosts)]
        assert all(f"CHANGE={number}" in one for one in shown), (out, err)


def test_a_job_goes_on_as_it_was_while_a_change_waits(jobs: Jobs) -> None:
    """An engine is gone for good while the job is changed: what runs goes on, and is changed when the engine is back."""
    is_up(jobs)
    victim = jobs.fleet.hosts[-1]
    victim.pull_cable()
    try:
        eventually(lambda: jobs.phase() == "degraded")
        jobs.spec(SPEC + "env: {{CHANGE: new}}\n")
        up = jobs.up()
        assert (up.returncode, victim.name in up.stderr) == (4, True), up.stderr
        state = jobs.status()
        assert (state["generation"], state["supervised"], state["nodes"][0]["state"]) == (1, True, "running")
        assert "goes on as it was" in up.stderr
    finally:
        victim.plug_cable()
    eventually(lambda: jobs.phase() == "running")


def is_up(jobs: Jobs) -> int:
    """Bring the job up, wait until it runs, and return its generation."""
    up = jobs.up()
    assert up.returncode == 0, up.stderr
    return int(jobs.trains()["generation"])


def restart_engine(host: Host) -> None:
    """Start a killed engine again, as systemd would."""
    host.start_engine()
    host.wait_for_engine()


def test_down_with_a_dead_host_gives_that_up_or_is_finished_later(jobs: Jobs) -> None:
    assert jobs.up().returncode == 0
    dead = jobs.fleet[1]
    dead.power_off()
    down = jobs.run("down")
    assert (down.returncode, "h2" in down.stderr, jobs.fleet[0].containers()) == (4, True, []), down.stderr
    given_up = jobs.run("down", "--lost", "h2")
    assert (given_up.returncode, "no answer from h2: `down` gave up what job" in given_up.stderr) == (0, True)
    assert jobs.run("list").stdout == ""
    dead.power_on()
    down = jobs.run("down", *jobs.where)
    assert (down.returncode, jobs.containers(), jobs.files()) == (0, [[], []], []), down.stderr


@pytest.mark.release(
    "tests/fleet/life/test_fanout.py::test_three_bad_hosts_of_many",
    "tests/fleet/life/test_faults.py::test_down_with_a_dead_host_gives_that_up_or_is_finished_later",
)
def test_a_dead_host_does_not_keep_the_others_from_coming_up(jobs: Jobs) -> None:
    jobs.fleet[1].power_off()
    up = jobs.up(check=True)
    assert (up.returncode, "h2: " in up.stderr, jobs.fleet[0].containers()) == (4, True, ["jobctl-counter-0"]), (
        up.stderr
    )
    status = jobs.run("status")
    assert status.returncode == 4
    jobs.fleet[1].power_on()
    is_as_wanted(jobs)


def test_no_host_answers(jobs: Jobs) -> None:
    for host in jobs.fleet.hosts:
        host.pull_cable()
    try:
        up = jobs.up(check=True)
        assert (up.returncode, up.stderr.count("error: ")) == (3, 3), up.stderr
        assert jobs.run("status", *jobs.where).returncode == 3
    finally:
        for host in jobs.fleet.hosts:
            host.plug_cable()


def test_a_lost_link_is_no_failure(jobs: Jobs) -> None:
    """The job goes on while its controller cannot see a host; what nobody can see is called so."""
    jobs.spec(SPEC + "recovery: {{host_timeout: 300s}}\n")
    assert jobs.up().returncode == 0
    jobs.fleet[1].pull_cable()
    try:
        status = eventually(lambda: (s := jobs.status())["nodes"][1]["reachable"] is False and s)
        entered = jobs.run("exec", "--node", "1", "--", "true")
        assert (entered.returncode, entered.stderr.startswith("error: h2: node 1 is there: ")) == (3, True), (
            entered.stderr
        )
        assert (status["phase"], status["nodes"][1]["state"]) == ("degraded", "lost")
    finally:
        jobs.fleet[1].plug_cable()
    eventually(lambda: jobs.phase() == "running")
    assert jobs.status()["generation"] == 1


def test_two_ups_at_once(jobs: Jobs) -> None:
    first, second = (jobs.begin_up() for _ in range(2))
    codes = sorted((first.wait(timeout=300), second.wait(timeout=300)))
    assert codes in ([0, 0], [0, 5])
    is_as_wanted(jobs)
    assert jobs.status()["generation"] == 1


def test_a_held_lock_names_its_holder(jobs: Jobs) -> None:
    """A holder on another machine that does not let go: it is waited for, then named; its lock can be broken."""
    line = HostLine("h1", addr=jobs.fleet[0].address)
    host_job = HostJob(line, transport_to(line, SshOptions(jobs.fleet.ssh_config)), "counter", "compose")
    with hold_on([host_job], "lock", "up elsewhere"):
        named = r"locked on h1 by `up elsewhere` \(pid \d+ of .* on .*\) for \d+ s"
        with pytest.raises(Locked, match=named), hold_on([host_job], "lock", "up", wait=0.3):
            pass
        assert jobs.up("--break-lock").returncode == 0
    with hold_on([host_job], "lock", "up", wait=10.0):  # sooner than it would expire
        pass
    host_job.transport.close()


def test_a_lock_expires_when_its_holder_is_cut_off(jobs: Jobs) -> None:
    line = HostLine("h1", addr=jobs.fleet[0].address)
    cut, free = (
        HostJob(line, transport_to(line, SshOptions(jobs.fleet.ssh_config)), "counter", "compose") for _ in range(2)
    )
    with hold_on([cut], "lock", "up elsewhere") as held:
        held._end.set()  # no more ticks: what a cut cable looks like from the host
        began = time.monotonic()
        with hold_on([free], "lock", "up", wait=60.0):
            assert time.monotonic() - began > 2  # the last tick may have been sent long before
    free.erase()
    for host_job in (cut, free):
        host_job.transport.close()
