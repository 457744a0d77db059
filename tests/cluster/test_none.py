"""Jobs without an operator, run for real: what is rendered is all that runs, and nobody sees to it but its launchers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .pod_processes import kill_process, runs
from .pods import Cluster

PODS = "namespaces"  # so many that containers would take minutes; JOBCTL_PODS=containers has them all the same
HEAD = """\
name: demo
framework: torch
command: [python3, -u, work.py]
per: node
code: {source: ., target: /workspace}
nodes: NODES
checkpoint: CHECKPOINT
recovery: {max_restarts: 2, host_timeout: 10s, rules: [{exit: 3, do: fail}]}
stop_grace_period: 1s
"""

# Prints who it is, and whom all agree on; ends when the test says so.
WORK = """\
import os, socket, sys, time
names = ("JOBCTL_GENERATION", "NODE_RANK", "NNODES", "MASTER_ADDR", "TOKEN")
print(*[os.environ.get(name, "-") for name in names], flush=True)
folder = os.environ["JOBCTL_CHECKPOINT_DIR"]
mine = os.path.join(folder, "%s.%s" % (os.environ["JOBCTL_GENERATION"], os.environ["NODE_RANK"]))
open(mine, "w").close()
while True:
    for name, code in (("end", 0), ("fail." + os.environ["NODE_RANK"], 3), ("again." + os.environ["JOBCTL_GENERATION"], 1)):
        if os.path.exists(os.path.join(folder, name)):
            sys.exit(code)
    time.sleep(0.05)
"""

Make = Callable[..., Cluster]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return the folder of the spec; the checkpoints are beside it."""
    folder = tmp_path / "job"
    folder.mkdir()
    (tmp_path / "checkpoint").mkdir()
    (folder / "work.py").write_text(WORK)
    return folder


def spec(here: Path, nodes: int, more: str = "") -> Path:
    path = here / "job.yaml"
    text = HEAD.replace("NODES", str(nodes)).replace("CHECKPOINT", str(here.parent / "checkpoint"))
    path.write_text(text + more)
    return path


def begun(cluster: Cluster, here: Path, generation: int, nodes: int) -> None:
    folder = here.parent / "checkpoint"
    cluster.until(lambda: all((folder / f"{generation}.{rank}").exists() for rank in range(nodes)))


def say(here: Path, word: str) -> None:
    (here.parent / "checkpoint" / word).touch()


@pytest.mark.parametrize("nodes", [1, 3])
def test_all_pods_train_together_and_end_together(cluster: Make, here: Path, nodes: int) -> None:
    made = cluster(spec(here, nodes, "secrets: [TOKEN]\n"), secrets={"TOKEN": "s3cret"})
    made.start()
    begun(made, here, 1, nodes)
    say(here, "end")
    assert made.finish() == {f"demo-{i}": [0] for i in range(nodes)}
    master = made.pods[0].address
    assert [pod.log() for pod in made.pods] == [f"1 {i} {nodes} {master} s3cret\n" for i in range(nodes)]


def test_none_begins_before_all_are_there(cluster: Make, here: Path) -> None:
    made = cluster(spec(here, 3))
    for pod in made.pods[:2]:
        pod.start()
    with pytest.raises(AssertionError):
        made.until(lambda: any(pod.log() for pod in made.pods), 3.0)
    made.pods[2].start()
    begun(made, here, 1, 3)
    say(here, "end")
    assert made.finish() == {f"demo-{i}": [0] for i in range(3)}


def test_a_process_that_fails_has_all_begin_again_in_the_same_pods(cluster: Make, here: Path) -> None:
    made = cluster(spec(here, 3))
    made.start()
    begun(made, here, 1, 3)
    kill_process(made.pods[1], "work.py")
    begun(made, here, 2, 3)
    say(here, "end")
    assert made.finish() == {f"demo-{i}": [0] for i in range(3)}
    assert [pod.attempt for pod in made.pods] == [1, 1, 1]
    # The others go over to the next generation; nobody is taken for cut off meanwhile.
    assert "have not answered" not in made.story()


@pytest.mark.parametrize(("nodes", "lost"), [(2, 0), (3, 1)])
def test_a_pod_that_is_lost_is_started_again_with_another_address(
    cluster: Make, here: Path, nodes: int, lost: int
) -> None:
    made = cluster(spec(here, nodes))
    made.start()
    begun(made, here, 1, nodes)
    made.pods[lost].kill()
    begun(made, here, 2, nodes)
    say(here, "end")
    codes = made.finish()
    assert {name: found[-1] for name, found in codes.items()} == {f"demo-{i}": 0 for i in range(nodes)}
    assert codes[f"demo-{lost}"] == [137, 0]
    assert made.pods[0].address in made.pods[1].log(generation=2)


def test_what_is_not_to_be_retried_ends_all_pods_with_its_code(cluster: Make, here: Path) -> None:
    made = cluster(spec(here, 3))
    made.start()
    begun(made, here, 1, 3)
    say(here, "fail.1")
    # They end by themselves, before a Job controller could have ended them.
    assert [pod.process.wait(180) for pod in made.pods if pod.process] == [3, 3, 3]
    made.finish()
    assert made.failed == {"demo"}
    logs = [(pod.folder / "pod.log").read_text() for pod in made.pods]
    assert all("the job ends: rank 1 exited with code 3: a rule says not to retry here" in log for log in logs)


def test_the_budget_is_used_up(cluster: Make, here: Path) -> None:
    made = cluster(spec(here, 2))
    made.start()
    begun(made, here, 1, 2)
    for generation in (1, 2):
        kill_process(made.pods[0], "work.py")
        begun(made, here, generation + 1, 2)
    kill_process(made.pods[0], "work.py")
    codes = made.finish()
    assert made.failed == {"demo"}
    assert set(codes["demo-0"] + codes["demo-1"]) <= {1, 137}
    assert 1 in codes["demo-0"] + codes["demo-1"]


def test_one_that_fails_when_others_are_done_has_all_begin_again(cluster: Make, here: Path) -> None:
    work = WORK.replace('("end", 0)', '("end." + os.environ["NODE_RANK"], 0), ("end", 0)')
    (here / "work.py").write_text(work)
    made = cluster(spec(here, 2))
    made.start()
    begun(made, here, 1, 2)
    say(here, "end.0")
    made.until(lambda: '"state": "succeeded"' in (made.pods[0].folder / "node" / "report.json").read_text())
    kill_process(made.pods[1], "work.py")
    begun(made, here, 2, 2)
    say(here, "end")
    assert made.finish() == {"demo-0": [0], "demo-1": [0]}


def test_what_processes_print_is_repeated_by_their_pod(cluster: Make, here: Path) -> None:
    made = cluster(spec(here, 2))
    made.start()
    begun(made, here, 1, 2)
    say(here, "end")
    assert made.finish() == {"demo-0": [0], "demo-1": [0]}
    for number, pod in enumerate(made.pods):
        printed = [line for line in pod.printed().splitlines() if line.startswith("rank")]
        assert printed == [f"rank{number} | {pod.log().rstrip()}"]


def test_a_pod_that_nobody_hears_stops_training_and_joins_again(cluster: Make, here: Path) -> None:
    """Its launcher hears and says nothing, as if the pod's network was gone: its processes end after `host_timeout`."""
    made = cluster(spec(here, 3))
    made.start()
    begun(made, here, 1, 3)
    cut = made.pods[1].folder / "job" / "cut"
    cut.write_text(str(time.time() + 3600.0))
    made.until(lambda: not runs(made.pods[1], "work.py"))
    # The others are most of the launchers: they go on, and begin nothing without it.
    assert [runs(made.pods[i], "work.py") for i in (0, 2)] == [True, True]
    assert not (here.parent / "checkpoint" / "2.0").exists()
    cut.unlink()
    begun(made, here, 2, 3)
    say(here, "end")
    assert made.finish() == {f"demo-{i}": [0] for i in range(3)}


def order(cluster: Cluster, command: str, number: int) -> None:
    """Change the control file in the ConfigMap, and let one kubelet alone notice it."""
    path = cluster.pods[1].folder / "job" / "control.json"
    told = json.loads(path.read_text())
    told["rendezvous"]["id"], told["number"], told["command"] = f"demo-{number}", number, command
    told["autonomy"]["base"] = {"number": number, "id": f"demo-{number}"}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(told))
    new.replace(path)


def test_all_obey_what_one_of_them_reads_in_the_control_file(cluster: Make, here: Path) -> None:
    made = cluster(spec(here, 3))
    made.start()
    begun(made, here, 1, 3)
    kill_process(made.pods[0], "work.py")
    begun(made, here, 2, 3)
    order(made, "stop", 3)
    made.until(lambda: not any(runs(pod, "work.py") for pod in made.pods))
    assert [pod.phase for pod in made.pods] == ["Running"] * 3
    order(made, "run", 4)
    begun(made, here, 4, 3)
    order(made, "finish", 4)
    assert made.finish() == {f"demo-{i}": [0] for i in range(3)}
    assert not (here.parent / "checkpoint" / "end").exists()


def test_a_job_that_is_suspended_ends_and_begins_again_later(cluster: Make, here: Path) -> None:
    made = cluster(spec(here, 2))
    made.start()
    begun(made, here, 1, 2)
    # Asked to end, launchers end by themselves, and as what no Job controller takes for a failure of the job.
    assert made.suspend() == [143, 143]
    for path in (here.parent / "checkpoint").iterdir():
        path.unlink()
    made.start()
    begun(made, here, 1, 2)
    say(here, "end")
    assert made.finish() == {"demo-0": [0], "demo-1": [0]}
    assert [pod.attempt for pod in made.pods] == [2, 2]


def test_what_a_lost_pod_causes_twice_is_no_bug(cluster: Make, here: Path) -> None:
    """The process of the other pod fails with code 1 both times, as one does whose peer is gone, and counts no step."""
    made = cluster(spec(here, 2))
    made.start()
    for generation in (1, 2):
        begun(made, here, generation, 2)
        made.pods[1].kill()
        say(here, f"again.{generation}")
    begun(made, here, 3, 2)
    say(here, "end")
    codes = made.finish()
    assert codes == {"demo-0": [0], "demo-1": [137, 137, 0]}
