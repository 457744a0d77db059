"""Jobs of the real MindSpore in containers of real hosts."""

from __future__ import annotations

import json
import re
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


def test_lenet_moves_with_its_scheduler_beside_a_job_of_msrun(tmp_path: Path, hosts: Fleet) -> None:
    """The scheduler's container dies, then the first host, which has it and a worker, and for which there is a spare.

    That the weights are those of a run that nothing disturbed: tests/local.
    """
    job = Jobs(tmp_path / "lenet", hosts, spec("lenet", hosts) + "args: [--epochs=8, --min-accuracy=0.93]\n")
    keep_pace(EXAMPLES / "mindspore-lenet", job.code)
    name_hosts(job, " spare")
    limit(job.checkpoints, 50)
    try:
        up = job.up("--target", "ssh")  # the other job here goes through Compose
        assert up.returncode == 0, up.stderr
        ends_well_with_msrun(tmp_path / "msrun", hosts)
        state = job.trains(25)
        assert homes(state) == [(0, "h1"), (1, "h2"), ("scheduler", "h1")]
        hosts[0].docker("kill", "jobctl-lenet-2")
        eventually(lambda: job.status()["nodes"][2]["restarts"] > state["nodes"][2]["restarts"])
        limit(job.checkpoints, 100)
        number = job.trains(75)["generation"]
        assert number == state["generation"]  # workers did not notice
        hosts[0].power_off()
        limit(job.checkpoints, None)
        done = job.run("wait", "--timeout", "400s", timeout=420.0)
        assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
        state = job.status()
        assert homes(state) == [(0, "h3"), (1, "h2"), ("scheduler", "h3")]
        assert state["generation"] > number
        out = job.run("logs", "--generation", str(state["generation"])).stdout  # it cannot ask the host that is off
        finals = re.findall(r"final step=176 loss=\S+ accuracy=(\S+) weights=(\S+)", out)
        assert (len(finals), len(set(finals)), float(finals[0][0]) >= 0.93) == (2, 1, True)
        (step,) = set(re.findall(r"resumed step=(\d+) of=176", out))
        assert int(step) >= 60
    finally:
        if "sshd" not in hosts[0].processes:
            hosts[0].power_on()
        down = job.run("down", *job.where)
        assert (down.returncode, [one for one in job.containers() if one], job.files()) == (0, [], []), down.stderr


def ends_well_with_msrun(directory: Path, hosts: Fleet) -> None:
    """A job on two hosts of one name, where msrun starts the workers."""
    job = Jobs(directory, hosts, spec("msrun", hosts) + "mindspore: {{launcher: msrun}}\n")
    (job.code / "train.py").write_text(COLLECTIVE)
    name_hosts(job)
    try:
        up = job.up("--set", "env.STEPS=30")
        assert up.returncode == 0, up.stderr
        done = job.run("wait", "--timeout", "400s", timeout=420.0)
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
