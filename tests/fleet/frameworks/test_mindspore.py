"""Jobs of MindSpore in containers of real hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.jobs import Jobs
from tests.fleet.machine import IMAGE
from tests.tools.frameworks import need_image_python, site_packages
from tests.tools.mindsporescripts import COLLECTIVE, LIGHT, undisturbed
from tests.tools.waiting import eventually

SPEC = f"""\
name: NAME
framework: mindspore
image: {IMAGE}
pull: never
script: train.py
code: .
nodes: 2
checkpoint: {{checkpoints}}
stop_grace_period: 5s
recovery: {{{{host_timeout: 12s, max_restarts: 9, standby: off}}}}
volumes: ["PACKAGES:/packages:ro", "STANDINS:/standins:ro"]
env: {{{{PYTHONPATH: "/standins:/packages", OMP_NUM_THREADS: "1", DELAY: "0.05"}}}}
"""


@pytest.fixture(scope="module")
def hosts(can_have_fleet: None) -> Iterator[Fleet]:
    """Three hosts that can import MindSpore, and have the same name: it counts workers of a host by that."""
    need_image_python()
    with fleet(3, lends={"mindspore": site_packages("mindspore")}, called="twin") as made:
        assert [host.run("hostname").strip() for host in made.hosts] == ["twin"] * 3
        yield made


def test_a_node_moves_with_its_scheduler_beside_a_job_of_msrun(tmp_path: Path, hosts: Fleet) -> None:
    """The scheduler's container dies, then the first host, which has it and a worker, and for which there is a spare.

    What MindSpore's own scheduler and workers do then: tests/local. The job of msrun is one of the real MindSpore.
    """
    job = Jobs(tmp_path / "light", hosts, spec("light", hosts))
    (job.code / "train.py").write_text(LIGHT)
    name_hosts(job, " spare")
    try:
        up = job.up("--target", "ssh")  # the other job here goes through Compose
        assert up.returncode == 0, up.stderr
        ends_well_with_msrun(tmp_path / "msrun", hosts)
        state = job.trains(25)
        assert homes(state) == [(0, "h1"), (1, "h2"), ("scheduler", "h1")]
        hosts[0].docker("kill", "jobctl-light-2")
        eventually(lambda: job.status()["nodes"][2]["restarts"] > state["nodes"][2]["restarts"])
        again = job.trains(furthest(job.status()) + 5)  # they have found it again
        assert (again["generation"], pids(again)[:2]) == (state["generation"], pids(state)[:2])
        saved = {rank: int((job.checkpoints / f"step-{rank}").read_text()) for rank in "01"}
        hosts[0].power_off()
        moved = job.trains(furthest(again), after=state["generation"])
        assert homes(moved) == [(0, "h3"), (1, "h2"), ("scheduler", "h3")]
        (job.checkpoints / "end").touch()
        done = job.run("wait", "--timeout", "800s", timeout=820.0)
        assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
        # It cannot ask the host that is off.
        out = job.run("logs", "--generation", str(job.status()["generation"])).stdout
        begun = re.findall(r"from step (\d+) rank (\d) of 2", out)
        assert sorted(rank for _, rank in begun) == ["0", "1"]
        assert all(int(step) >= saved[rank] for step, rank in begun)
    finally:
        if "sshd" not in hosts[0].processes:
            hosts[0].power_on()
        down = job.run("down", *job.where)
        assert (down.returncode, [one for one in job.containers() if one], job.files()) == (0, [], []), down.stderr


def furthest(state: dict[str, Any]) -> int:
    """Return the furthest step of the workers."""
    return max(node["progress"] or 0 for node in state["nodes"])


def pids(state: dict[str, Any]) -> list[int]:
    """Return the processes of all nodes."""
    return [process["pid"] for node in state["nodes"] for process in node["processes"]]


def ends_well_with_msrun(directory: Path, hosts: Fleet) -> None:
    """A job on two hosts of one name, where msrun starts the workers."""
    job = Jobs(directory, hosts, spec("msrun", hosts) + "mindspore: {{launcher: msrun}}\n")
    (job.code / "train.py").write_text(COLLECTIVE)
    name_hosts(job)
    try:
        up = job.up("--set", "env.STEPS=30")
        assert up.returncode == 0, up.stderr
        done = job.run("wait", "--timeout", "800s", timeout=820.0)
        assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
        # MindSpore was once killed by SIGSEGV in its own teardown: then the last generation only says it once more.
        finals = [line.partition("final ")[2].split() for line in job.ok("logs").splitlines() if "final " in line]
        assert {(*words[:2], " ".join(words[2:4])) for words in finals} == {
            (str(rank), "2", undisturbed(30)) for rank in (0, 1)
        }
    finally:
        down = job.run("down", *job.where)
        assert down.returncode == 0, down.stderr


def spec(name: str, hosts: Fleet) -> str:
    """Return a job's spec."""
    text = SPEC.replace("NAME", name).replace("PACKAGES", str(hosts.lent("mindspore")))
    return text.replace("STANDINS", str(hosts.lent("standins")))


def name_hosts(job: Jobs, third: str | None = None) -> None:
    """Give a job two hosts, and the third as what `third` says."""
    lines = (job.code / "hosts.txt").read_text().splitlines()
    (job.code / "hosts.txt").write_text("\n".join([*lines[:2], *([lines[2] + third] if third else [])]) + "\n")


def homes(state: dict[str, Any]) -> list[tuple[int | str, str]]:
    """Where nodes are, and the scheduler."""
    return [(node["name"] or node["node"], node["host"]) for node in state["nodes"]]


def test_a_schedulers_port_that_is_taken(tmp_path: Path, hosts: Fleet) -> None:
    job = Jobs(tmp_path, hosts, spec("learner", hosts) + "rendezvous: {{port: 22345}}\n")
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
