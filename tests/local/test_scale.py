"""An elastic job with more and fewer nodes: a new generation each time, and launchers that stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.waiting import eventually


@pytest.fixture
def elastic(jobs: Any) -> Any:
    spec = jobs.directory / "job.yaml"
    spec.write_text(spec.read_text().replace("nodes: 2", 'nodes: "1:3"'))
    jobs.set(STEPS="10000", DELAY="0.02")
    jobs.ok("up")
    return jobs


def replicas(jobs: Any) -> tuple[int, str, list[int]]:
    state = jobs.running()
    # What was ended before it had said which generation it is would be missing below.
    eventually(lambda: f"generation {state['generation']} from" in jobs.ok("logs", "--node", "0"))
    return state["generation"], state["replicas"], [node["processes"][0]["rank"] for node in state["nodes"]]


def launchers(jobs: Any) -> dict[str, int]:
    reports = sorted(Path(jobs.environ["JOBCTL_STATE_DIR"]).rglob("node-*/report.json"))
    return {path.parent.name: json.loads(path.read_text())["launcher"]["pid"] for path in reports}


@pytest.mark.long
def test_down_and_up_again(elastic: Any) -> None:
    assert replicas(elastic) == (1, "3[1:3]", [0, 1, 2])
    before = launchers(elastic)
    elastic.ok("scale", "1")
    assert replicas(elastic) == (2, "1[1:3]", [0])
    assert launchers(elastic) == {"node-0": before["node-0"]}
    elastic.ok("scale", "counter", "2")
    assert replicas(elastic) == (3, "2[1:3]", [0, 1])
    assert launchers(elastic)["node-0"] == before["node-0"]
    assert elastic.run("scale", "2").stderr.startswith("job `counter` is running as the spec says; nothing to do")
    elastic.ok("up")
    assert replicas(elastic) == (4, "3[1:3]", [0, 1, 2])
    log = elastic.ok("logs", "--node", "0").splitlines()
    assert [line.split(" | ")[1].split(" from")[0] for line in log if " | generation" in line] == [
        f"generation {number}" for number in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("options", [(), pytest.param(("--no-supervise",), marks=pytest.mark.long)])
def test_who_follows_goes_on_through_a_change(elastic: Any, options: tuple[str, ...]) -> None:
    elastic.ok("down")
    (elastic.directory / "hold").touch()
    elastic.set(STEPS="3")
    with open(elastic.directory / "followed", "w") as file:
        following = elastic.popen("up", "--follow", *options, stdout=file)
    assert replicas(elastic)[:2] == (1, "3[1:3]")
    waiting = [elastic.popen(*argv) for argv in (("wait", "counter"), ("events", "counter", "-f"))]
    followed = elastic.directory / "followed"
    eventually(lambda: "node2 rank2 | generation 1 from" in followed.read_text())  # it follows, before anything changes
    elastic.ok("scale", "1")
    assert replicas(elastic)[:2] == (2, "1[1:3]")
    elastic.ok("up", *options)
    assert replicas(elastic)[:2] == (3, "3[1:3]")
    eventually(lambda: "node2 rank2 | generation 3 from" in followed.read_text())
    assert following.poll() is None
    (elastic.directory / "hold").unlink()
    assert following.wait(120) == 0, following.stderr.read()
    assert [process.wait(120) for process in waiting] == [0, 0]
    for process in (following, *waiting):
        process.communicate()


def test_what_cannot_be(elastic: Any) -> None:
    for arguments, message in (
        (["4"], "error: job.yaml: the job has 1 to 3 nodes, not 4 [nodes-out-of-range]"),
        (["0"], "error: the number of nodes has to be at least 1, and at most that of the spec's `nodes`"),
        (["counter", "three"], "error: `scale` takes a job and a number of nodes"),
        (["other", "2"], "error: job `other` is not up"),
    ):
        done = elastic.run("scale", *arguments)
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, message)
    assert replicas(elastic) == (1, "3[1:3]", [0, 1, 2])


def test_a_fixed_job(jobs: Any) -> None:
    jobs.set(STEPS="10000", DELAY="0.02")
    jobs.ok("up")
    done = jobs.run("scale", "3")
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            "error: job.yaml: the job has a fixed number of nodes, 2 [nodes-out-of-range]",
            'hint: `nodes: "2:3"` makes it elastic',
        ],
    )
    jobs.ok("stop")
    assert jobs.run("scale", "2").stderr.splitlines()[0] == "error: job `counter` is stopped: there is nothing to scale"


def test_another_environment_changes_nothing(jobs: Any) -> None:
    spec = jobs.directory / "job.yaml"
    text = spec.read_text().replace("nodes: 2", 'nodes: "1:3"')
    there = f"{jobs.directory}/checkpoints"
    spec.write_text(
        text.replace(f"checkpoint: {there}", f"checkpoint: ${{CK:-{jobs.directory}/elsewhere}}\nsecrets: [PIN]")
    )
    jobs.set(STEPS="10000", DELAY="0.02", CK=there, PIN="1234")
    jobs.ok("up")
    jobs.running()
    control = Path(jobs.environ["JOBCTL_STATE_DIR"]) / "jobs/counter/host/run/control.json"
    for name in ("CK", "PIN", "DELAY"):
        del jobs.environ[name]
    done = jobs.run("scale", "2")
    drift = f"checkpoint.dir: {there} → {jobs.directory}/elsewhere"
    assert (done.returncode, drift in done.stderr) == (0, True), done.stderr
    assert "the values of the last `up` are used" in done.stderr
    assert (replicas(jobs)[:2], json.loads(control.read_text())["checkpoint_dir"]) == ((2, "2[1:3]"), there)
    restarted = jobs.run("restart")
    assert (restarted.returncode, drift in restarted.stderr) == (0, True)
    assert json.loads(control.read_text())["checkpoint_dir"] == there
    host = control.parent.parent
    assert json.loads((host / "secrets/secrets.json").read_text()) == {"PIN": "1234"}
    assert json.loads((host / "environ.json").read_text())["DELAY"] == "0.02"
    told = jobs.run("plan")
    assert (told.returncode, drift in told.stdout) == (10, True), told.stdout
