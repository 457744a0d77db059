"""docs/kubernetes.md, followed: a job moves from this machine to a cluster and back, with the same spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.kube.world import World
from tests.tools.waiting import eventually

SPEC = """\
name: resnet
framework: torch
image: registry.example.com/train:1
command: [python3, -u, train.py]
per: node
code: .
checkpoint: CHECKPOINTS
kubernetes: {namespace: ml}
"""
# Counts on from its checkpoint, and ends well the second time.
TRAIN = """\
import os, sys, time
path = os.path.join(os.environ["JOBCTL_CHECKPOINT_DIR"], "runs")
runs = int(open(path).read()) + 1 if os.path.exists(path) else 1
with open(path + ".new", "w") as file:
    file.write(str(runs))
os.replace(path + ".new", path)
print("run", runs, flush=True)
time.sleep(0 if runs == 2 else 600)
"""


def test_to_a_cluster_and_back(jobctl: Any, world: World, tmp_path: Path, monkeypatch: Any) -> None:
    def run(*argv: str) -> tuple[int, list[str]]:
        ran = jobctl(*argv)
        return ran.code, (ran.out + ran.err).splitlines()

    job, kept = tmp_path / "job", tmp_path / "checkpoints"
    job.mkdir()
    monkeypatch.chdir(job)
    (job / "train.py").write_text(TRAIN)
    (job / "job.yaml").write_text(SPEC.replace("CHECKPOINTS", str(kept)))

    assert run("validate", "job.yaml", "--target", "kubernetes")[0] == 0
    assert run("render", "job.yaml", "--target", "kubernetes", "--out", "../rendered")[0] == 0
    assert sorted(path.name for path in (tmp_path / "rendered" / "manifests").iterdir()) == [
        "01-configmap-resnet-code.yaml",
        "02-configmap-resnet-launcher.yaml",
        "03-configmap-resnet.yaml",
        "04-service-resnet.yaml",
        "05-job-resnet.yaml",
    ]
    code, stream = run("render", "job.yaml", "--target", "kubernetes")
    whole = list(yaml.load_all("\n".join(stream), yaml.CSafeLoader))
    assert (code, [one["kind"] for one in whole]) == (0, ["ConfigMap", "ConfigMap", "ConfigMap", "Service", "Job"])

    try:
        assert run("up")[0] == 0
        for command in ("up", "plan"):  # it would train twice
            assert run(command, "--target", "kubernetes") == (
                2,
                [
                    "error: job `resnet` is up on target `local`, and would be brought up on target `kubernetes` too",
                    "hint: `jobctl down resnet` first; its checkpoints stay",
                ],
            )
        eventually((kept / "runs").exists)  # a process that runs may not have got there yet
        assert run("down")[0] == 0
        code, lines = run("up", "job.yaml", "--target", "kubernetes")
        assert (code, lines[-1].partition(".")[0]) == (0, "job `resnet` runs: 1 node")
        assert len(world.pods()) == 1
        assert run("up") == (0, ["job `resnet` is running as the spec says; nothing to do"])
        assert run("up", "--target", "local")[0] == 2
        assert (run("down", "resnet")[0], world.pods()) == (0, [])
        assert run("up")[0] == 0
        assert run("wait", "--timeout", "180")[0] == 0
        assert run("plan", "--target", "kubernetes")[0] == 10  # nothing of it runs here any more
    finally:
        run("down")
    assert (kept / "runs").read_text() == "2"
