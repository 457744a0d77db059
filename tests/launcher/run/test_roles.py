"""Roles: servers that serve until all trainers are done, trainers that wait for them, processes that join again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.run.verdict import Verdict
from tests.launcher.conftest import PATIENCE, STALL, kill_together
from tests.tools.launches import launch_of
from tests.tools.ports import free_ports
from tests.tools.waiting import promptly

SERVE = """\
import os, socket, time
print("serves", os.environ["TRAINERS"], flush=True)
listening = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
while True:
    listening.accept()
"""
# Trains until a file tells it how to end.
TRAIN = """\
import os, sys, time
print("trains with", os.environ["SERVERS"], "rank", os.environ["RANK"], "of", os.environ["COUNT"], flush=True)
open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(os.environ.get("STEP", "1"))
while True:
    for name in ("end", "end-" + os.environ["RANK"]):
        if os.path.exists(name):
            code = int(open(name).read())
            if code:
                os.unlink(name)
            sys.exit(code)
    time.sleep(0.02)
"""


TERMS = {"restarts": 9, "rules": [], "ports": [20000, 29999], "failures": []}


class Job:
    """A trainer node of two processes and a server node of one, on ports that are free."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.rejoin = 3
        self.within: float | None = None
        self.ports = free_ports(3)
        self.launchers: dict[int, subprocess.Popen[str]] = {}

    def launch(self, number: int) -> subprocess.Popen[str]:
        """Start the launcher of a node: 0 trains, 1 serves."""
        node, trains = self.node, number == 0
        env = [
            ["SERVERS", {"slot": "servers"}],
            ["TRAINERS", {"slot": "trainers"}],
            ["COUNT", {"slot": "trainer_count"}],
        ]
        launch = {
            **node.launch,
            "node": number,
            "role": "trainer" if trains else "server",
            "nproc": 2 if trains else 1,
            "command": node.script(TRAIN if trains else SERVE),
            "env": env,
            "process_env": [["PORT", {"slot": "port"}], ["RANK", {"slot": "rank"}]],
            "log_name": "workerlog" if trains else "serverlog",
            "after": "server" if trains else "",
            "until": "" if trains else "trainer",
            "rejoin": self.rejoin if trains else None,
            "rejoin_within": self.within,
        }
        node.dir, kept = node.root / f"node-{number}", node.dir
        self.launchers[number] = node.start(**launch)
        node.dir = kept
        return self.launchers[number]

    def order(self, **more: Any) -> None:
        """Hand both a generation, with the ports at which their launchers hear each other."""
        reports = [promptly(lambda number=number: self.report(number).get("port")) for number in (0, 1)]
        common = {"host": "a", "address": "127.0.0.1"}
        self.node.order(
            members=[
                {
                    "node": 0,
                    "rank": 0,
                    "roles": ["trainer"],
                    "nproc": 2,
                    "port": reports[0],
                    "ports": self.ports[:2],
                    **common,
                },
                {
                    "node": 1,
                    "rank": 1,
                    "roles": ["server"],
                    "nproc": 1,
                    "port": reports[1],
                    "ports": self.ports[2:],
                    **common,
                },
            ],
            **more,
        )

    def report(self, number: int) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.node.root / f"node-{number}" / "report.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def log(self, number: int, name: str) -> str:
        path = self.node.root / f"node-{number}" / "logs" / "1" / name
        return path.read_text() if path.exists() else ""

    def end(self, code: int, name: str = "end") -> None:
        new = self.node.root / "end.new"
        new.write_text(str(code))
        new.rename(self.node.root / name)

    def trains(self, begun: int = 1) -> None:
        """Wait until both trainers have begun that often in all, and said so to the end of the line."""
        logs = (0, "workerlog.0"), (0, "workerlog.1")
        promptly(lambda: sum(len(re.findall("trains with .*\\n", self.log(*log))) for log in logs) == begun)


@pytest.fixture
def job(node: Any) -> Job:
    return Job(node)


def test_trainers_wait_for_servers_and_servers_end_with_trainers(job: Job) -> None:
    trainer = job.launch(0)
    promptly(lambda: job.report(0).get("port"))
    job.launch(1).send_signal(signal.SIGSTOP)  # it is a slow one
    os.kill(job.launchers[1].pid, signal.SIGCONT)
    job.order()
    job.trains(2)
    first, second, server = (f"127.0.0.1:{port}" for port in job.ports)
    assert job.log(0, "workerlog.0") == f"trains with {server} rank 0 of 2\n"
    assert job.log(0, "workerlog.1") == f"trains with {server} rank 1 of 2\n"
    promptly(lambda: job.log(1, "serverlog.0") == f"serves {first},{second}\n")
    table = "\n".join(
        [
            "demo, generation 1: 2 nodes, which meet at 127.0.0.1:29999",
            "NODE  ROLE     HOST  ADDRESS    RANKS  PORTS",
            f"0     trainer  a     127.0.0.1  0-1    {job.ports[0]},{job.ports[1]}",
            f"1     server   a     127.0.0.1  0      {job.ports[2]}",
            "this is node 1, on a; devices cpu:0 cpu:1 cpu:2",
            "its processes are given COUNT, PORT, RANK, SERVERS, TRAINERS",
        ]
    )
    assert job.log(1, "launch.log").startswith(table + "\n\n")
    job.end(0)
    assert (trainer.wait(PATIENCE), job.launchers[1].wait(PATIENCE)) == (0, 0)
    assert [(job.report(n)["state"], job.report(n)["exit_code"]) for n in (0, 1)] == [
        ("succeeded", 0),
        ("succeeded", 0),
    ]


def test_trainers_that_wait_say_for_whom(job: Job) -> None:
    job.launch(0)
    promptly(lambda: job.report(0).get("port"))
    (job.node.root / "node-1").mkdir()
    (job.node.root / "node-1" / "report.json").write_text('{"port": 1}')
    job.order()
    promptly(lambda: job.report(0)["reason"] == f"waits for server 127.0.0.1:{job.ports[2]}")
    assert [process["state"] for process in job.report(0)["processes"]] == ["pending", "pending"]


@pytest.mark.every_python
def test_a_trainer_that_dies_is_started_again_alone(job: Job) -> None:
    job.launch(0)
    job.launch(1)
    job.order()
    job.trains(2)
    before = {p["rank"]: p["pid"] for p in promptly(lambda: all_running(job.report(0)))}
    os.kill(before[1], signal.SIGKILL)
    job.trains(3)
    # The report may still be that of before, where the launcher has started the process and not told yet.
    report = promptly(lambda: (r := job.report(0))["process_restarts"] and all_running(r) and r)
    after = {p["rank"]: p["pid"] for p in report["processes"]}
    assert (after[0], after[1] != before[1], report["process_restarts"], report["generation"]) == (
        before[0],
        True,
        1,
        1,
    )
    assert report["restart_reason"] == "rank 1 was killed by SIGKILL"
    job.end(0)
    assert [job.launchers[n].wait(PATIENCE) for n in (0, 1)] == [0, 0]


def test_a_trainer_that_others_have_to_give_up_first_is_away_so_long(job: Job) -> None:
    job.node.launch["rejoin_after"] = STALL
    job.launch(0)
    job.launch(1)
    job.order()
    job.trains(2)
    pids = [p["pid"] for p in promptly(lambda: all_running(job.report(0)))]
    os.kill(pids[1], signal.SIGKILL)
    report = promptly(lambda: (r := job.report(0))["reason"] and r)
    assert report["reason"] == f"rank 1 was killed by SIGKILL; it is started again {STALL:g} s after that"
    assert [p["state"] for p in report["processes"]] == ["running", "failed"]
    ended = report["processes"][1]["finished_at"]
    job.trains(3)
    first, again = promptly(lambda: (r := job.report(0))["process_restarts"] and all_running(r))
    assert first["pid"] == pids[0]
    assert STALL <= again["started_at"] - ended < PATIENCE
    promptly(lambda: job.report(0)["reason"] is None)
    job.end(0)
    assert [job.launchers[n].wait(PATIENCE) for n in (0, 1)] == [0, 0]


@pytest.mark.parametrize(("now", "early"), [(1000.0, True), (1029.9, True), (1030.0, False), (400.0, False)])
def test_a_clock_that_was_set_back_keeps_no_trainer_away(tmp_path: Path, now: float, early: bool) -> None:
    """It would be away for as much longer as that is."""
    run: Any = SimpleNamespace(
        folders=SimpleNamespace(logs=str(tmp_path)), launch=launch_of(rejoin=3, rejoin_after=30.0)
    )
    assert Verdict(run, 0).is_early(Failure("exit", 1, 1, 1, None, 1000.0), now) is early


def all_running(report: dict[str, Any]) -> list[dict[str, Any]]:
    found = report.get("processes", [])
    return found if found and all(p["state"] == "running" for p in found) else []


def test_a_trainer_that_fails_again_without_a_step_in_between_is_a_bug(job: Job) -> None:
    job.launch(0)
    job.launch(1)
    job.order()
    job.trains(2)
    job.end(7, "end-1")
    job.trains(3)
    job.end(7, "end-1")
    report = promptly(lambda: (r := job.report(0))["state"] == "failed" and r)
    assert (report["failure"]["kind"], report["reason"], report["process_restarts"]) == (
        "exit",
        "rank 1 exited with code 7",
        1,
    )


def test_restarts_alone_are_used_up(job: Job) -> None:
    job.launch(0)
    job.launch(1)
    job.order()
    for number in range(4):
        job.trains(2 + number)
        pid = promptly(lambda: all_running(job.report(0)))[number % 2]["pid"]
        os.kill(pid, signal.SIGKILL)
        promptly(
            lambda number=number: job.report(0)["process_restarts"] == number + 1 or job.report(0)["state"] == "failed"
        )
    report = job.report(0)
    assert (report["failure"]["kind"], report["reason"]) == (
        "exhausted",
        "rank 1 ended with code 137, and all 3 restarts are used up",
    )


def test_restarts_alone_count_for_as_long_as_all_others_do(job: Job) -> None:
    """`recovery.window`: what was longer ago is forgotten."""
    job.rejoin, job.within = 1, 0.001
    job.launch(0)
    job.launch(1)
    job.order()
    for number in range(2):
        job.trains(2 + number)
        os.kill(promptly(lambda: all_running(job.report(0)))[number]["pid"], signal.SIGKILL)
        promptly(lambda number=number: job.report(0)["process_restarts"] == number + 1)
    job.end(0)
    assert [job.launchers[n].wait(PATIENCE) for n in (0, 1)] == [0, 0]


def test_launchers_begin_the_next_generation_and_trainers_join_it_again(job: Job) -> None:
    """Nobody watches. A trainer's node that was killed costs no generation, a server does; and so it is in the next one."""
    job.node.supervisor.silence()
    job.launch(0)
    job.launch(1)
    job.order(autonomy={**TERMS, "base": {"number": 1, "id": "demo-1"}})
    joins_again(job, 1)
    os.kill(all_running(job.report(1))[0]["pid"], signal.SIGKILL)
    joins_again(job, 2)
    (failure,) = job.report(0)["order"]["autonomy"]["failures"]
    assert failure["reason"] == "server 0 was killed by SIGKILL"
    job.end(0)
    assert [job.launchers[n].wait(PATIENCE) for n in (0, 1)] == [0, 0]


def test_a_node_that_comes_back_too_often_has_all_begin_again(job: Job) -> None:
    job.node.supervisor.silence()
    job.rejoin = 1
    job.launch(0)
    job.launch(1)
    job.order(autonomy={**TERMS, "base": {"number": 1, "id": "demo-1"}})
    joins_again(job, 1)
    comes_back(job)
    joins_again(job, 2)
    (failure,) = job.report(1)["order"]["autonomy"]["failures"]
    assert (failure["kind"], failure["reason"]) == ("launcher", "its launcher was started again")


def comes_back(job: Job) -> None:
    """Kill the launcher of the trainers, with all below it, and start another one, as an engine does."""
    kill_together(job.node.pids("node-0"))
    assert job.launchers[0].wait(PATIENCE) == -signal.SIGKILL
    promptly(lambda: not job.node.pids("node-0"))
    job.launch(0)


def joins_again(job: Job, generation: int) -> None:
    """Kill the trainers' node once all train in a generation, and see that it comes back in the same one."""
    promptly(lambda: all((r := job.report(n))["generation"] == generation and all_running(r) for n in (0, 1)))
    assert job.report(0)["process_restarts"] == 0
    comes_back(job)
    found = promptly(lambda: (r := job.report(0))["process_restarts"] and all_running(r) and r)
    told = found["generation"], found["process_restarts"], found["restart_reason"]
    assert told == (generation, 1, "its launcher was started again")
    assert (job.report(1)["generation"], job.report(1)["state"]) == (generation, "running")


def test_a_trainer_node_that_was_killed_joins_the_same_generation(job: Job) -> None:
    job.launch(0)
    job.launch(1)
    job.order()
    job.trains(2)
    comes_back(job)
    job.trains(4)
    assert (job.report(0)["generation"], job.report(1)["state"]) == (1, "running")
    job.end(0)
    assert [job.launchers[n].wait(PATIENCE) for n in (0, 1)] == [0, 0]


def test_servers_end_well_when_told_to_finish(job: Job) -> None:
    job.launch(0)
    job.launch(1)
    job.order()
    job.trains(2)
    control = json.loads(job.node.control.read_text())
    job.node.write(json.dumps({**control, "command": "finish", "grace": 1.0}))
    assert job.launchers[1].wait(PATIENCE) == 0
    assert (job.report(1)["state"], job.report(1)["exit_code"]) == ("succeeded", 0)
