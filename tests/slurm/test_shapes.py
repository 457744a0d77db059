"""Jobs whose nodes are not all alike, or not always as many, in a real Slurm."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from tests.slurm.cluster import wait_for
from tests.slurm.conftest import HOST_TIMEOUT, SlurmJobs, versions

# A server answers with its number until it is told to end; a trainer asks all of them until there is a file `enough`.
_PARTS = """\
import contextlib, os, socket, time
servers = [place.rpartition(":") for place in os.environ["JOBCTL_SERVERS"].split(",")]
role, rank = os.environ["JOBCTL_ROLE"], int(os.environ["JOBCTL_ROLE_RANK"])
print(role, rank, "on", os.uname().nodename, "generation", os.environ["JOBCTL_GENERATION"], flush=True)
if role == "server":
    listening = socket.create_server((servers[rank][0], int(servers[rank][2])))
    while True:
        asking = listening.accept()[0]
        with contextlib.suppress(OSError): asking.sendall(b"%d" % rank)
def ask(host, port):
    while True:
        try:
            with socket.create_connection((host, int(port)), 5) as asked:
                if answer := asked.recv(9).decode(): return answer
        except OSError: pass  # a server that begins, has ended, or stands still
        time.sleep(0.1)
while True:
    heard = [ask(host, port) for host, _, port in servers]
    if os.path.exists("enough"): break
    time.sleep(0.1)
print("trainer", rank, "has heard", *heard, flush=True)
"""


@versions(
    pytest.mark.release(
        "tests/slurm/test_shapes.py::test_servers_and_trainers_share_the_machines_of_an_allocation[22.05]"
    )
)
def test_servers_and_trainers_share_the_machines_of_an_allocation(jobs: SlurmJobs) -> None:
    parts = {"mode": "ps", "ps": {"servers": 2, "trainers": 2}, "per": "process"}
    jobs.write(spec={**parts, "command": [jobs.python, "parts.py"], "checkpoint": None})
    (jobs.directory / "parts.py").write_text(_PARTS)
    jobs.ok("up", "--target", "slurm")
    state = jobs.running()
    assert [(node["role"], node["host"]) for node in state["nodes"]] == [
        *(("trainer", "s1"), ("trainer", "s2"), ("server", "s1"), ("server", "s2"))
    ]
    assert state["slurm"]["nodes"] == "s[1-2]"

    os.kill(jobs.cluster.nodes[1].processes("parts.py")[-1], signal.SIGKILL)
    wait_for(lambda: jobs.status()["generation"] == 2, "generation 2")
    jobs.running()
    (jobs.directory / "enough").touch()
    jobs.ok("wait", "--timeout", "240s")
    assert sorted(re.findall(r"trainer (\d) has heard 0 1", jobs.ok("logs"))) == ["0", "1"]
    jobs.ok("down")
    assert [pid for node in jobs.cluster.nodes for pid in node.processes("parts.py")] == []


def last_ranks(jobs: SlurmJobs) -> tuple[int, list[int]]:
    """Return the last generation of which a rank has begun, and the nodes whose ranks have."""
    begun = jobs.begun()
    last = max((generation for _, generation in begun), default=0)
    return last, sorted(node for node, generation in begun if generation == last)


@versions(
    pytest.mark.release(
        "tests/slurm/test_shapes.py::test_an_elastic_job_takes_the_machines_there_are_and_goes_on_with_fewer[22.05]"
    )
)
def test_an_elastic_job_takes_the_machines_there_are_and_goes_on_with_fewer(jobs: SlurmJobs) -> None:
    s3 = jobs.cluster.nodes[2]
    jobs.cluster.run("scontrol", "update", "NodeName=s4", "State=DRAIN", "Reason=test")
    try:
        jobs.write(spec={"nodes": "2:4", "recovery": {"host_timeout": HOST_TIMEOUT}})
        jobs.ok("up", "--target", "slurm")
        # It begins with two where the third machine has not answered within 20 seconds.
        state = jobs.until(lambda state: (state["phase"], state["replicas"]) == ("running", "3[2:4]"), "three nodes")
        assert [node["host"] for node in state["nodes"]] == ["s1", "s2", "s3"]

        wait_for(lambda: last_ranks(jobs)[1] == [0, 1, 2], "what all ranks have printed: it comes over the cable")
        before, _ = last_ranks(jobs)
        s3.cable("down")
        wait_for(lambda: last_ranks(jobs)[0] > before and last_ranks(jobs)[1] == [0, 1], "ranks without the third")
        jobs.goes_on()
        state = jobs.running()
        assert [node["host"] for node in state["nodes"]] == ["s1", "s2"]

        s3.cable("up")
        wait_for(lambda: last_ranks(jobs)[1] == [0, 1, 2], "ranks with the third again")
        jobs.goes_on()
        assert jobs.running()["replicas"] == "3[2:4]"
        jobs.ok("scale", "tiny", "2")
        jobs.goes_on()
        assert jobs.running()["replicas"] == "2[2:4]"
        spares = [{"host": "s3", "state": "ready"}]
        jobs.until(lambda state: state["spares"] == spares, "a spare that was heard just now")
        jobs.ok("scale", "tiny", "3")
        jobs.goes_on()
        assert jobs.running()["replicas"] == "3[2:4]"
        assert jobs.run("scale", "tiny", "4").returncode == 2  # s4 is not of the allocation
        jobs.check_steps()
        events = [json.loads(line) for line in jobs.ok("events", "-o", "json").splitlines()]
        sizes = [e["nodes"] for e in events if e["event"] in ("host-lost", "resized")]
        assert sizes[-4:] == [[0, 1], [0, 1, 2]] * 2
        jobs.ok("down")
    finally:
        s3.cable("up")
        jobs.cluster.run("scontrol", "update", "NodeName=s4", "State=RESUME")
