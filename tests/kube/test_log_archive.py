"""How logs of pods are kept before the pods go, and followed where connections do not last."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes import pod_log_archive, pod_logs
from jobctl.jobspec.deploy.kubernetes.pod_log_writers import Writer
from jobctl.jobspec.deploy.kubernetes.pods import parse_pod
from jobctl.jobspec.deploy.kubernetes.problems import Cut, Unreachable
from jobctl.jobspec.deploy.model.log_lines import Line
from tests.kube.server import ApiServer
from tests.kube.world import World
from tests.tools.own_time import set_time


def test_logs_of_nodes_that_are_off_are_waited_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, each would keep `down` for as long as the server waits for its kubelet."""
    together = threading.Barrier(3, timeout=20)

    class Log:
        def __init__(self, api: Any, pod: Any, writer: Any) -> None:
            self.pod, self.writer = pod, writer

        def so_far(self) -> Iterator[Line]:
            yield Line(1.0, self.writer.node, None, 0, "trainer.log", b"step 1")
            together.wait()
            raise Unreachable("test", "its kubelet does not answer")

    monkeypatch.setattr(pod_log_archive, "PodLog", Log)
    names = [f"resnet-{number}" for number in range(3)]
    pods = [parse_pod({"metadata": {"name": name, "uid": name}, "spec": {"containers": [{"name": "c"}]}})
            for name in names]  # fmt: skip
    api: Any = None
    count, unread = pod_log_archive.collect(api, pods, None, tmp_path)
    assert (count, list(unread)) == (6, names)
    logs = [(tmp_path / f"node-{number}" / "logs" / "trainer.log").read_bytes() for number in range(3)]
    assert logs == [b"step 1\n"] * 3


def test_what_pods_print_once_they_are_told_to_end_is_kept(jobctl: Any, world: World, api: ApiServer) -> None:
    """They save when they get SIGTERM, and say how far they have come; then the cluster has nothing more of them."""
    jobctl("up", "--target", "kubernetes")
    for rank in (0, 1):
        api.print(f"resnet-{rank}-abcde", f"rank{rank} | step 1")

    def save(thing: Any) -> None:
        if thing["spec"].get("suspend"):
            for rank in (0, 1):
                api.print(f"resnet-{rank}-abcde", f"rank{rank} | saved at step 2")

    api.altered.insert(0, save)
    assert (jobctl("stop", "resnet").code, world.pods()) == (0, [])
    assert sorted(jobctl("logs", "resnet").out.splitlines()) == [
        "node0 rank0 | saved at step 2",
        "node0 rank0 | step 1",
        "node1 rank1 | saved at step 2",
        "node1 rank1 | step 1",
    ]


def test_what_is_printed_after_a_connection_broke_is_kept(
    jobctl: Any, world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does after two minutes of silence, and a save that is told of at its end may take longer than that."""
    jobctl("up", "--target", "kubernetes")
    api.print("resnet-0-abcde", "rank0 | step 1")
    read, write = threading.Event(), pod_log_archive._Kept.write

    def noted(kept: Any, line: Line) -> None:
        write(kept, line)
        if line.text == b"saved at step 2":
            read.set()

    def save(thing: Any) -> None:
        if thing["spec"].get("suspend"):
            api.print("resnet-0-abcde", "rank0 | saved at step 2")
            read.wait(20)  # the pod goes afterwards

    monkeypatch.setattr(pod_log_archive._Kept, "write", noted)
    api.altered.insert(0, save)
    api.fail("get", "pods/log", "cut", name="resnet-0-abcde", skip=1)  # the log is read, and then followed
    assert jobctl("stop", "resnet").code == 0
    assert jobctl("logs", "resnet").out == "node0 rank0 | step 1\nnode0 rank0 | saved at step 2\n"


def test_a_line_with_a_number_that_is_no_rank_is_a_line() -> None:
    """Any process in a pod can print it; Python reads no number of so many digits, which ended `logs` and `down`."""
    text = b"rank" + b"9" * 5000 + b" | x"
    writer = Writer(0, None, "", 2, forwarded=True)
    assert writer.line(1.0, text) == Line(1.0, 0, None, 0, "launcher.log", text)
    assert writer.line(1.0, b"rank3 | x") == Line(1.0, 0, 3, 0, "workerlog.1", b"x")


def test_a_log_whose_connections_break_at_once_is_asked_for_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each pod of a job whose node goes away costs the API server as many requests as it can answer."""
    asked: list[str] = []
    made = {"metadata": {"name": "resnet-0", "uid": "1"}, "spec": {"containers": [{"name": "node"}]}}

    class Paused(Exception):
        pass

    class Breaking:
        namespace = "test"

        def find(self, kind: Any, name: str) -> Any:
            return made

        def stream(self, call: Any, query: Any, silence: float) -> None:
            asked.append(str(call))
            assert len(asked) < 3, "asked again and again without a pause"

        def lines(self, answer: Any, call: Any) -> Iterator[bytes]:
            raise Cut("test", "the connection broke")

    def sleep(seconds: float) -> None:
        raise Paused

    set_time(monkeypatch, pod_logs, sleep=sleep)
    api: Any = Breaking()
    with pytest.raises(Paused):
        pod_logs.PodLog(api, parse_pod(made), Writer(0, 0, "workerlog.0")).follow(lambda line: None, lambda why: None)
