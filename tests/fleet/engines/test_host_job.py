"""A job's place on a host: what `render` prints is what is sent, and what is sent runs on real engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.plan.generation import Generation, first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.render.artefact import Artefact, control_json, render
from jobctl.jobspec.spec.hosts import Host
from jobctl.jobspec.spec.load import load_text
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host as Machine
from tests.fleet.machine import IMAGE
from tests.tools.frameworks import need_image_python, need_packages
from tests.tools.waiting import eventually

Target = Literal["compose", "ssh"]
STEPS = """\
import os, time
print("node", os.environ["JOBCTL_NODE"], "of", os.environ["NNODES"], os.environ["MASTER_ADDR"], flush=True)
open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write("1")
while not os.path.exists("/jobctl/node/go"):
    time.sleep(0.05)
"""
SPEC = f"""\
name: demo
framework: torch
image: {IMAGE}
pull: never
command: [python3, -c, {json.dumps(STEPS)}]
per: node
nodes: 2
checkpoint: /tmp
stop_grace_period: 2s
"""


class Job:
    """A planned job and its sites on the fleet."""

    def __init__(self, fleet: Fleet, target: Target, text: str, **environ: str) -> None:
        loaded = load_text(Path("/none/job.yaml"), text, environ=environ)
        assert loaded.spec is not None, loaded.diagnostics
        self.hosts = tuple(Host(host.name, addr=host.address) for host in fleet.hosts)
        self.plan: Plan = planner.plan(loaded.spec, self.hosts, Context(target, "/none", "me@here", "0.1.0"))
        self.generation: Generation = first_generation(self.plan)
        options = SshOptions(fleet.ssh_config)
        self.host_jobs = {
            host.name: HostJob(host, Ssh(host, options), self.plan.job, target)
            for host in self.hosts
            if host.name in {node.host.name for node in self.plan.nodes}
        }

    def artefacts(self, host: str) -> list[Artefact]:
        """Return what a host is sent: its own folder of what `render` prints, and the launcher."""
        found = []
        for artefact in render(self.plan, self.generation):
            own = artefact.path.removeprefix(f"{host}/")
            if own != artefact.path or artefact.path == "launcher.py":
                found.append(replace(artefact, path=own))
        return found

    def nodes(self, host: str) -> list[int]:
        return [node.index for node in self.plan.nodes if node.host.name == host]

    def on_all(self, task: Callable[[HostJob], Any]) -> list[Any]:
        outcome = fan_out(self.host_jobs.values(), task)
        assert outcome.failed == {}
        return list(outcome.done.values())

    def up(self) -> None:
        def start(host_job: HostJob) -> None:
            nodes = self.nodes(host_job.host.name)
            host_job.send(self.artefacts(host_job.host.name), ["run", *(f"node-{node}" for node in nodes)])
            for node in nodes:
                host_job.start(node)

        self.on_all(start)
        # With nobody to supervise them, launchers hear each other.
        reports = eventually(lambda: len(found := self.reports()) == len(self.plan.nodes) and found)
        members = [replace(m, port=reports[m.node]["port"]) for m in self.generation.members]
        generation = replace(self.generation, members=tuple(members))
        self.on_all(lambda host_job: host_job.hand_over(b"", control_json(generation)))

    def reports(self) -> dict[int, dict[str, Any]]:
        return {node: report for one in self.on_all(HostJob.observe) for node, report in one.reports.items()}

    def are(self, state: str) -> bool:
        """Say whether both nodes report `state`; fails for one that reports a failure."""
        reports = self.reports()
        assert not any(report["state"] == "failed" for report in reports.values()), reports
        return {node: report["state"] for node, report in reports.items()} == {0: state, 1: state}

    def down(self) -> None:
        def end(host_job: HostJob) -> None:
            for node in self.nodes(host_job.host.name):
                host_job.end(node, 1)
            host_job.erase()
            host_job.transport.close()

        self.on_all(end)


@pytest.fixture(params=["compose", "ssh"])
def job(request: pytest.FixtureRequest, hosts: Fleet) -> Iterator[Job]:
    made = Job(hosts, request.param, SPEC)
    yield made
    made.down()
    assert [host.containers() for host in hosts.hosts] == [[], []]
    assert [list((host.home / ".jobctl").glob("*/*")) for host in hosts.hosts] == [[], []]


def restarts(host: Machine) -> int:
    """Return how often the engine of a host has started its only container again."""
    return int(host.docker("inspect", "--format", "{{.RestartCount}}", host.containers()[0]))


def test_what_render_prints_is_sent_and_runs_to_its_end(job: Job, hosts: Fleet) -> None:
    job.up()
    eventually(lambda: job.are("running"))
    first, second = job.on_all(HostJob.observe)
    assert [(c.node, c.role, c.running, c.owner) for c in (*first.containers, *second.containers)] == [
        (0, "trainer", True, "me@here"),
        (1, "trainer", True, "me@here"),
    ]
    assert first.control.generation is not None
    assert first.control.generation.number == 1
    for host, seen in zip(hosts.hosts, (first, second), strict=True):
        work = host.home / ".jobctl" / host.name / "demo"
        for artefact in job.artefacts(host.name):
            assert (work / artefact.path).read_bytes() == artefact.content
            assert (work / artefact.path).stat().st_mode & 0o777 == artefact.mode
        texts = [one.content.decode() for one in job.artefacts(host.name) if one.path != "launcher.py"]
        ids = [container.artefact for container in seen.containers]
        assert all(one and one.hash in text and str(one.inputs) in text for one, text in zip(ids, texts, strict=True))
    job.up()  # once more changes nothing
    assert [seen.containers for seen in job.on_all(HostJob.observe)] == [first.containers, second.containers]
    for host in hosts.hosts:
        host.docker("exec", host.containers()[0], "touch", "/jobctl/node/go")
    eventually(lambda: job.are("succeeded"))
    # Nobody ends the job here: engines start the containers again, whose launchers have nothing left to do.
    eventually(lambda: all(restarts(host) for host in hosts.hosts))
    eventually(lambda: job.are("succeeded") and all(s.containers[0].running for s in job.on_all(HostJob.observe)))
    log = (hosts[1].home / ".jobctl" / "h2" / "demo" / "node-1" / "logs" / "1" / "workerlog.0").read_text()
    assert log == f"node 1 of 2 {hosts[0].address}\n"


def test_nothing_there_is_nothing_seen(job: Job) -> None:
    assert [(s.containers, s.control, s.reports) for s in job.on_all(HostJob.observe)] == [((), Control(), {})] * 2
    host_job = job.host_jobs["h1"]
    host_job.end(0, 1)
    host_job.erase()


def test_a_directory_that_cannot_be_made_is_named(hosts: Fleet) -> None:
    job = Job(hosts, "ssh", SPEC)
    host_job = job.host_jobs["h1"]
    wrong = HostJob(replace(host_job.host, dir="/dev/null/jobctl"), host_job.transport, "demo", "ssh")
    with pytest.raises(HostError, match=r"h1: cannot write into /dev/null/jobctl/h1/demo: .*Not a directory"):
        wrong.send(job.artefacts("h1"), [])
    host_job.transport.close()


def test_a_host_without_the_compose_plugin(hosts: Fleet) -> None:
    job = Job(hosts, "compose", SPEC)
    host_job = job.host_jobs["h1"]
    hosts[0].compose = False
    hosts[0].install_docker()
    try:
        host_job.send(job.artefacts("h1"), ["run", "node-0"])
        with pytest.raises(HostError) as caught:
            host_job.start(0)
        assert (caught.value.code, bool(caught.value.hint)) == ("compose-missing", True)
    finally:
        hosts[0].compose = True
        hosts[0].install_docker()
        host_job.erase()
        host_job.transport.close()


def test_an_image_that_is_not_there(hosts: Fleet) -> None:
    job = Job(hosts, "ssh", SPEC.replace(IMAGE, "no-such-image:1"))
    host_job = job.host_jobs["h1"]
    host_job.send(job.artefacts("h1"), ["run", "node-0"])
    with pytest.raises(HostError) as caught:
        host_job.start(0)
    assert caught.value.code == "image-missing"
    host_job.erase()
    host_job.transport.close()


# Says who it is, which it knows from torchrun.
RANK = """\
import os
name = "rank-%s-of-%s" % (os.environ["RANK"], os.environ["WORLD_SIZE"])
open(os.path.join(os.environ["JOBCTL_CHECKPOINT_DIR"], name), "w").close()
"""


def test_torchrun_of_two_hosts_meets(hosts: Fleet, tmp_path: Path) -> None:
    """torch is not in the image: the environment of these tests is mounted into the containers.

    That processes which torchrun has started in containers train together: tests/cluster.
    """
    need_packages("torch")
    need_image_python()
    for folder in ("checkpoints", "code"):
        (tmp_path / folder).mkdir()
    (tmp_path / "code" / "train.py").write_text(RANK)
    text = f"""
name: meets
framework: torch
image: {IMAGE}
pull: never
script: /code/train.py
nodes: 2
checkpoint: {tmp_path}/checkpoints
volumes: ["{tmp_path}/code:/code:ro", "{hosts.lent("packages")}:/packages:ro"]
env: {{PYTHONPATH: /packages, OMP_NUM_THREADS: "1"}}
recovery: {{standby: "off"}}
"""
    job = Job(hosts, "compose", text)
    try:
        job.up()
        reports = [
            host.home / f".jobctl/{host.name}/meets/node-{node}/report.json" for node, host in enumerate(hosts.hosts)
        ]
        over = ("succeeded", "failed")
        eventually(lambda: all(json.loads(path.read_text())["state"] in over for path in reports), 400)
        assert job.are("succeeded")
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["rank-0-of-2", "rank-1-of-2"]
    finally:
        job.down()
