"""Jobs of the real MindSpore in containers of real hosts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.frameworks import need_image_python, site_packages
from tests.tools.mindsporescripts import COLLECTIVE, undisturbed
from tests.tools.pace import keep_pace, limit

from .fleet import EXAMPLES, Fleet, fleet
from .jobs import Jobs, eventually
from .machine import IMAGE

SPEC = f"""\
name: learner
framework: mindspore
image: {IMAGE}
pull: never
script: train.py
code: .
nodes: 2
checkpoint: {{checkpoints}}
stop_grace_period: 5s
recovery: {{{{host_timeout: 12s, max_restarts: 9}}}}
volumes: ["PACKAGES:/packages:ro"]
env: {{{{PYTHONPATH: /packages, OMP_NUM_THREADS: "1", STEPS: "100000", DELAY: "0.05"}}}}
"""


@pytest.fixture(scope="module")
def hosts(can_have_fleet: None) -> Iterator[Fleet]:
    """Three hosts that can import MindSpore, and have the same name: it counts workers of a host by that."""
    need_image_python()
    packages = site_packages("mindspore")
    with fleet(3, lends={"mindspore": packages}, called="twin") as made:
        assert [host.run("hostname").strip() for host in made.hosts] == ["twin"] * 3
        yield made


def trains(job: Jobs, generation: int, step: int) -> dict[str, Any]:
    """Wait until all workers have got that far in a generation, and return the status."""

    def there() -> dict[str, Any] | None:
        state = job.status()
        far = all((node["progress"] or 0) >= step for node in state["nodes"] if node["role"] == "trainer")
        return state if far and (state["generation"], state["phase"]) == (generation, "running") else None

    try:
        return eventually(there, 400) or {}
    except AssertionError:
        raise AssertionError(f"{job.status()}\n{job.ok('events')}\n{job.ok('logs', '--tail', '20')}") from None


def test_lenet_ends_the_same_whatever_dies(tmp_path: Path, hosts: Fleet) -> None:
    """A worker's container, the scheduler's, and the first host with both, for which there is a spare: the weights of a run that nothing disturbed."""
    args = "args: [--epochs=12, --min-accuracy=0.93]\n"
    job = Jobs(tmp_path, hosts, SPEC.replace("PACKAGES", str(hosts.lent("mindspore"))) + args)
    keep_pace(EXAMPLES / "mindspore-lenet", job.code)
    lines = (job.code / "hosts.txt").read_text().splitlines()
    (job.code / "hosts.txt").write_text("\n".join([*lines[:2], f"{lines[2]} spare"]) + "\n")

    def finals(text: str) -> list[tuple[str, str]]:
        return re.findall(r"final step=264 loss=\S+ accuracy=(\S+) weights=(\S+)", text)

    try:
        done = job.up("--target", "ssh", "--follow")  # the other tests here go through Compose
        assert done.returncode == 0, done.stderr
        alone = finals(done.stdout)
        assert (len(alone), len(set(alone)), float(alone[0][0]) >= 0.93) == (2, 1, True)

        limit(job.checkpoints, 100)
        up = job.up("--fresh", "--set", "args=[--epochs=12, --min-accuracy=0.93, --step-delay=0.15]")
        assert up.returncode == 0, up.stderr
        state = trains(job, 2, 25)
        assert homes(state) == [(0, "h1"), (1, "h2"), ("scheduler", "h1")]
        hosts[1].docker("kill", "jobctl-learner-1")
        before = trains(job, 3, 25)
        hosts[0].docker("kill", "jobctl-learner-2")
        eventually(lambda: job.status()["nodes"][2]["restarts"] > before["nodes"][2]["restarts"])
        limit(job.checkpoints, 200)
        trains(job, 3, 150)  # in the same generation: workers did not notice
        hosts[0].power_off()
        limit(job.checkpoints, None)
        done = job.run("wait", "--timeout", "400s", timeout=420.0)
        assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
        assert homes(job.status()) == [(0, "h3"), (1, "h2"), ("scheduler", "h3")]
        out = job.run("logs", "--generation", "4").stdout  # 4: it cannot ask the host that is off
        assert finals(out) == alone
        (step,) = set(re.findall(r"resumed step=(\d+) of=264", out))
        assert int(step) >= 20
    finally:
        if "sshd" not in hosts[0].processes:
            hosts[0].power_on()
        down = job.run("down", *job.where)
        assert (down.returncode, [one for one in job.containers() if one], job.files()) == (0, [], []), down.stderr


def homes(state: dict[str, Any]) -> list[tuple[int | str, str]]:
    """Where nodes are, and the scheduler."""
    return [(node["name"] or node["node"], node["host"]) for node in state["nodes"]]


def test_two_jobs_side_by_side_while_a_cable_is_out(tmp_path: Path, hosts: Fleet) -> None:
    """One has msrun start its workers; both wait for the host, begin anew from their checkpoints, and end as if nothing had been."""
    jobs = []
    for name, more in (("left", ""), ("right", "mindspore: {{launcher: msrun}}\n")):
        spec = SPEC.replace("PACKAGES", str(hosts.lent("mindspore"))).replace("learner", name).replace("100000", "150")
        job = Jobs(tmp_path / name, hosts, spec.replace('DELAY: "0.05"', 'DELAY: "0.1", HOLD: "20"') + more)
        (job.code / "train.py").write_text(COLLECTIVE)
        lines = (job.code / "hosts.txt").read_text().splitlines()
        (job.code / "hosts.txt").write_text("\n".join(lines[:2]) + "\n")
        jobs.append(job)
    try:
        for job in jobs:
            up = job.up()
            assert up.returncode == 0, up.stderr
        for job in jobs:
            trains(job, 1, 5)
        hosts[1].pull_cable()
        for job in jobs:  # none has ended while the other came up
            eventually(lambda job=job: job.phase() == "degraded")
            (job.checkpoints / "go").touch()
        time.sleep(15.0)  # host_timeout is 12 s: what was cut off has ended by itself
        hosts[1].plug_cable()
        for job in jobs:
            done = job.run("wait", "--timeout", "400s", timeout=420.0)
            assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
            assert job.status()["generation"] > 1
            # MindSpore was once killed by SIGSEGV in its own teardown: then the last generation only says it once more.
            finals = [line.partition("final ")[2].split() for line in job.ok("logs").splitlines() if "final " in line]
            assert {(*words[:2], " ".join(words[2:4])) for words in finals} == {
                (str(rank), "2", undisturbed(150)) for rank in (0, 1)
            }
    finally:
        hosts[1].plug_cable()
        for job in jobs:
            down = job.run("down", *job.where)
            assert down.returncode == 0, down.stderr
        assert ([one for one in jobs[0].containers() if one], jobs[0].files()) == ([], [])


def test_a_schedulers_port_that_is_taken(tmp_path: Path, hosts: Fleet) -> None:
    job = Jobs(
        tmp_path, hosts, SPEC.replace("PACKAGES", str(hosts.lent("mindspore"))) + "rendezvous: {{port: 22345}}\n"
    )
    lines = (job.code / "hosts.txt").read_text().splitlines()
    (job.code / "hosts.txt").write_text(f"{lines[0]} roles=trainer\n{lines[1]} roles=trainer,scheduler\n")
    listener = hosts[1]
    listener.start("listener", ["python3", "-m", "http.server", "22345"])
    eventually(lambda: ":22345 " in listener.run("ss", "-ltn"))
    try:
        done = job.run("check", *job.where, "-o", "json")
    finally:
        listener.processes.pop("listener").kill()
    taken = [(f["host"], f["code"]) for f in json.loads(done.stdout)["findings"] if f["check"] == "ports"]
    assert (done.returncode, taken) == (3, [("h2", "port-taken")])
