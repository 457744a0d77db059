"""The life of a job on real hosts: up, twice, changed, stopped, failing, ended, down."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.fleet.jobs import SPEC, Elsewhere, Jobs
from tests.tools.waiting import eventually

RUNS = (
    "job `counter` runs: 2 nodes, generation 1."
    " See `jobctl status counter`, `jobctl logs counter -f`, `jobctl wait counter`"
)


@pytest.fixture(params=["compose", "ssh"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_whole_life(jobs: Jobs, target: str) -> None:
    up = jobs.up("--target", target, check=True)
    assert up.returncode == 0, up.stderr
    # What takes long is told, too.
    assert [line for line in up.stderr.splitlines() if " for a while: " not in line] == [
        "start node 0 on h1: not running",
        "start node 1 on h2: not running",
        "generation 1: the job is new",
        RUNS,
    ]
    lies_there_as_rendered(jobs, target)
    before = [host.docker("ps", "-q", "--no-trunc") for host in jobs.fleet.hosts]
    assert jobs.ok("exec", "--node", "1", "--", "df", "-k", "/dev/shm").split()[8] == str(64 << 20)
    again = jobs.run("up")  # hosts, target and SSH configuration are remembered
    assert (again.returncode, again.stderr) == (0, "job `counter` is running as the spec says; nothing to do\n")
    assert jobs.run("plan").returncode == 0
    status = jobs.status()
    assert {key: status[key] for key in ("phase", "target", "generation", "supervised", "replicas")} == {
        "phase": "running",
        "target": target,
        "generation": 1,
        "supervised": True,
        "replicas": "2/2",
    }
    assert [f"{node['container']}\n" for node in status["nodes"]] == before
    eventually(lambda: measured(jobs) == ["h1", "h2"])  # a host that stands still is left out of a look
    # A failing process costs no container, and the job goes on from its checkpoint.
    (jobs.checkpoints / "fail-1").touch()
    jobs.trains(generation=2)
    assert [host.docker("ps", "-q", "--no-trunc") for host in jobs.fleet.hosts] == before
    jobs.end()
    assert jobs.run("wait", "--timeout", "300s").returncode == 0
    logs = jobs.ok("logs", "--node", "1").splitlines()
    assert [line.split(" from ")[0] for line in logs if "generation" in line] == [
        "node1 rank1 | generation 1",
        "node1 rank1 | generation 2",
    ]
    done = jobs.run("up")
    assert (done.returncode, done.stderr) == (0, "job `counter` is succeeded as the spec says; nothing to do\n")
    down = jobs.run("down", "-o", "json")
    report = json.loads(down.stdout)
    assert (down.returncode, report["down"], [h["host"] for h in report["hosts"]]) == (0, True, ["h1", "h2"])
    assert sorted(path.name for path in Path(report["logs"]).iterdir()) == ["node-0", "node-1"]
    assert (jobs.containers(), jobs.files()) == ([[], []], [])
    assert jobs.ok("logs", "--node", "1").splitlines() == logs
    assert jobs.run("down").returncode == 0


def measured(jobs: Jobs) -> list[str]:
    """Return the hosts whose memory `metrics` tells."""
    metrics = jobs.ok("metrics")
    return [host.name for host in jobs.fleet.hosts if f'jobctl_host_memory_bytes{{host="{host.name}"}}' in metrics]


def lies_there_as_rendered(jobs: Jobs, target: str) -> None:
    """What lies on the hosts is what `render` prints."""
    jobs.ok("render", "--hosts", "hosts.txt", "--target", target, "--out", str(jobs.directory / "rendered"))
    for number, host in enumerate(jobs.fleet.hosts):
        work = host.home / ".jobctl" / host.name / "counter"
        name = "compose.yaml" if target == "compose" else f"node-{number}.sh"
        assert (work / name).read_bytes() == (jobs.directory / "rendered" / host.name / name).read_bytes()
        assert (work / "launcher.py").read_bytes() == (jobs.directory / "rendered" / "launcher.py").read_bytes()


def test_changes_restart_what_depends_on_them(jobs: Jobs) -> None:
    jobs.spec(SPEC + "env: {{NEW: '1'}}\n")
    assert jobs.up().returncode == 0
    (jobs.code / "counter.py").write_text((jobs.code / "counter.py").read_text() + "# changed\n")
    assert jobs.steps() == [
        "replace node 0 on h1: the code changed",
        "replace node 1 on h2: the code changed",
        "generation 2: the code changed",
    ]
    assert jobs.run("up").returncode == 0
    for host in jobs.fleet.hosts:
        text = host.docker("exec", host.containers()[0], "tail", "-n", "1", "counter.py")
        assert text == "# changed\n"
    jobs.spec(SPEC + "env: {{NEW: '1'}}\n# a comment\n")
    (jobs.code / "hosts-other.txt").write_text("h9 addr=10.0.0.9\n")
    assert jobs.steps() == []  # neither is code
    jobs.spec(SPEC)
    assert jobs.steps()[0] == "replace node 0 on h1: env.NEW: 1 → unset"
    jobs.spec(SPEC + "env: {{NEW: '2'}}\n")
    assert jobs.steps()[0] == "replace node 0 on h1: env.NEW: 1 → 2"
    jobs.spec(SPEC.replace("nodes: 2", "nodes: 1") + "env: {{NEW: '1'}}\n")
    assert jobs.steps()[0] == "remove node 1 on h2: no longer part of the job"
    assert jobs.run("up").returncode == 0
    assert [len(names) for names in jobs.containers()] == [1, 0]


def test_stop_and_resume_keeps_containers(jobs: Jobs) -> None:
    assert jobs.up("--no-supervise").returncode == 0
    before = jobs.containers()
    assert jobs.status()["supervised"] is False
    assert jobs.run("stop").returncode == 0
    assert (jobs.phase(), jobs.containers()) == ("stopped", before)
    assert jobs.run("up").returncode == 0
    assert (jobs.phase(), jobs.status()["generation"]) == ("running", 2)
    assert jobs.run("restart", "--node", "1").returncode == 0
    assert (jobs.phase(), jobs.status()["generation"]) == ("running", 3)


def test_another_owner_is_left_alone(jobs: Jobs, tmp_path: Path) -> None:
    assert jobs.up("--no-supervise").returncode == 0
    before = jobs.containers()
    jobs.environ |= {"LOGNAME": "somebody", "JOBCTL_STATE_DIR": str(tmp_path / "other")}
    for command in ("up", "down"):
        done = jobs.run(command, *jobs.where)
        assert (done.returncode, "belongs to root@" in done.stderr) == (5, True), done.stderr
    assert jobs.containers() == before
    assert jobs.up("--take-over", "--no-supervise").returncode == 0
    assert "somebody@" in jobs.fleet[0].docker("inspect", jobs.fleet[0].containers()[0])
    # The fixture's own `down` is somebody's too.


def down_elsewhere(jobs: Jobs, state: Path) -> None:
    """Take the job down from another state directory, while the supervisor of this one lives; nothing is left, nor comes back."""
    elsewhere = Elsewhere(jobs, state)
    done = elsewhere.run("down", *jobs.where)
    assert (done.returncode, jobs.containers(), jobs.files()) == (0, [[], []], []), done.stderr
    eventually(lambda: not jobs.status()["supervised"])  # it sees that the job has gone
    assert (jobs.containers(), jobs.files()) == ([[], []], [])


def test_down_from_elsewhere_leaves_nothing(jobs: Jobs, tmp_path: Path) -> None:
    for pause in (0.0, 0.8):  # while the supervisor does nothing, and while it is about to start a container
        assert jobs.up().returncode == 0
        if pause:
            jobs.fleet[1].docker("rm", "-f", jobs.fleet[1].containers()[0])
            time.sleep(pause)  # any moment will do
        down_elsewhere(jobs, tmp_path / "other")


def test_exec_and_pull(jobs: Jobs, tmp_path: Path) -> None:
    jobs.spec(SPEC + "outputs: [runs/, deep/result.txt]\n")
    assert jobs.up().returncode == 0
    script = "hostname; echo kept > runs/file; mkdir deep; echo 0.9 > deep/result.txt; exit 7"
    done = jobs.run("exec", "--node", "1", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (7, "counter-1\n")
    jobs.ok("pull", "counter", str(tmp_path / "pulled"))
    assert (tmp_path / "pulled" / "outputs" / "h2" / "runs" / "file").read_text() == "kept\n"
    assert jobs.run("exec", "--node", "5", "--", "true").returncode == 2
    assert jobs.run("exec", "--node", "1", "--", "no-such-command").returncode == 127
    (jobs.code / "counter.py").write_text((jobs.code / "counter.py").read_text() + "# changed\n")
    jobs.ok("up")
    assert jobs.ok("exec", "--node", "1", "--", "cat", "runs/file", "deep/result.txt") == "kept\n0.9\n"
    report = json.loads(jobs.ok("down", "-o", "json"))
    outputs = Path(report["logs"]) / "outputs" / "h2"
    assert {path.relative_to(outputs).as_posix(): path.read_text() for path in outputs.rglob("*.*")} == {
        "deep/result.txt": "0.9\n"
    }
    assert (outputs / "runs" / "file").read_text() == "kept\n"


def test_a_command_in_a_node_ends_where_jobctl_is_interrupted_or_nobody_reads(jobs: Jobs) -> None:
    host = jobs.fleet.hosts[1]
    assert jobs.up().returncode == 0

    def runs(command: str) -> bool:
        return command in host.docker("top", "jobctl-counter-1", "-o", "pid,args")

    process = jobs.popen("exec", "--node", "1", "--", "sh", "-c", "sleep 4321; echo never")
    eventually(lambda: runs("sleep 4321"))
    process.send_signal(signal.SIGINT)
    assert (process.wait(60), process.communicate()) == (130, ("", ""))
    eventually(lambda: not runs("sleep 4321"))
    process = jobs.popen("exec", "--node", "1", "--", "yes")
    assert process.stdout is not None
    assert process.stdout.readline() == "y\n"
    assert runs("yes")
    process.stdout.close()
    assert process.wait(60) == 141
    eventually(lambda: not runs("yes"))


@pytest.mark.release(
    "tests/fleet/life/test_faults.py::test_a_job_goes_on_as_it_was_while_a_change_waits",
    "tests/fleet/life/test_faults.py::test_a_change_while_an_engine_restarts",
)
def test_a_change_that_cannot_begin_ends_nothing(jobs: Jobs) -> None:
    assert jobs.up().returncode == 0
    before = jobs.containers()
    (jobs.code / "counter.py").write_text((jobs.code / "counter.py").read_text() + "# changed\n")
    hosts = (jobs.code / "hosts.txt").read_text().splitlines()
    (jobs.code / "hosts.txt").write_text("\n".join([hosts[0], hosts[1] + " interface=ib7"]))
    done = jobs.run("up", "-o", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["phase"], report["generation"]) == (4, "running", 1), done.stderr
    assert [failed["host"] for failed in report["failed_hosts"]] == ["h2"]
    assert jobs.containers() == before
    (jobs.code / "hosts.txt").write_text("\n".join(hosts))
    jobs.ok("up")
    assert jobs.status()["generation"] == 2


def test_a_job_grows_with_the_hosts_file_and_is_scaled(jobs: Jobs) -> None:
    jobs.spec(SPEC.replace("nodes: 2", 'nodes: "1:2"'))
    hosts = (jobs.code / "hosts.txt").read_text()
    (jobs.code / "hosts.txt").write_text(hosts.splitlines()[0] + "\n")
    assert jobs.up().returncode == 0
    before = ids(jobs, 0)
    (jobs.code / "hosts.txt").write_text(hosts)
    assert jobs.steps() == [
        "start node 1 on h2: not running",
        "generation 2: nodes changed from 1 to 2",
    ]
    jobs.ok("up")
    assert (jobs.status()["replicas"], ids(jobs, 0)) == ("2[1:2]", before)
    jobs.ok("scale", "1")
    state = jobs.status()
    assert (state["replicas"], state["generation"], ids(jobs, 0), ids(jobs, 1)) == ("1[1:2]", 3, before, "")
    (jobs.code / "hosts.txt").rename(jobs.code / "more.txt")
    jobs.ok("scale", "2", "--hosts", "more.txt")
    assert (jobs.status()["replicas"], ids(jobs, 0)) == ("2[1:2]", before)
    assert jobs.steps() == []  # `up` knows that file, too
    (jobs.code / "more.txt").rename(jobs.code / "hosts.txt")


def ids(jobs: Jobs, host: int) -> str:
    return jobs.fleet[host].docker("ps", "-q", "--filter", "label=jobctl.job=counter")


@pytest.mark.release(
    "tests/local/test_drill.py::test_the_job_goes_on",
    "tests/fleet/recovery/test_recovery.py::test_a_drill_of_a_lost_host",
)
def test_a_drill(jobs: Jobs) -> None:
    assert jobs.up().returncode == 0
    for generation, options in ((1, ()), (2, ("--container",))):
        jobs.trains(101)
        done = jobs.run("drill", "--yes", "--node", "1", *options, "-o", "json")
        report = json.loads(done.stdout)
        assert (done.returncode, report["host"], report["generation"]) == (0, "h2", generation), done.stderr
        assert report["continued"] is not False
        assert report["after"] > 50
        assert 0 <= report["seconds"]["detected"] <= report["seconds"]["training"]


@pytest.mark.release(
    "tests/fleet/frameworks/test_mindspore.py::test_a_node_moves_with_its_scheduler_beside_a_job_of_msrun",
    "tests/plan/test_planner.py::test_two_runs_of_one_name_do_not_meet",
)
def test_two_jobs_live_side_by_side(jobs: Jobs, tmp_path: Path) -> None:
    other = Jobs(tmp_path / "second", jobs.fleet, SPEC.replace("name: counter", "name: second"))
    assert (jobs.up().returncode, other.up().returncode) == (0, 0)
    ports = {
        json.loads((host.home / ".jobctl" / host.name / job / "run" / "control.json").read_text())["rendezvous"]["port"]
        for host in jobs.fleet.hosts
        for job in ("counter", "second")
    }
    assert len(ports) == 2
    assert [len(names) for names in jobs.containers()] == [2, 2]
    assert other.run("down").returncode == 0
    assert (jobs.phase(), [len(names) for names in jobs.containers()]) == ("running", [1, 1])


@pytest.mark.release(
    "tests/plan/test_planner.py::test_a_placement_is_kept",
    "tests/fleet/recovery/test_hot_spares.py::test_launchers_move_a_node_to_a_spare_and_the_next_up_leaves_it_there",
)
def test_nodes_stay_where_they_are(jobs: Jobs) -> None:
    assert jobs.up("--no-supervise").returncode == 0
    path = jobs.code / "hosts.txt"
    (jobs.code / ".dockerignore").write_text("*\n!counter.py\n")
    assert jobs.run("up", "--no-supervise").returncode == 0
    path.write_text("".join(f"{line}\n" for line in reversed(path.read_text().splitlines())))
    plan = jobs.run("plan", "--hosts", "hosts.txt", "-o", "json")
    assert [step["kind"] for step in json.loads(plan.stdout)["steps"]] == ["supervise"]
