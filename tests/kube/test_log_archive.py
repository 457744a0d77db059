"""How logs of pods are kept before the pods go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes import pod_log_archive
from jobctl.jobspec.deploy.kubernetes.pods import parse_pod
from jobctl.jobspec.deploy.kubernetes.problems import Unreachable
from jobctl.jobspec.deploy.model.log_lines import Line


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
