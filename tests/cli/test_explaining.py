"""`plan --explain`: ranks, devices, endpoints and variables of the whole job."""

from __future__ import annotations

import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from jobctl.console import deliver
from jobctl.jobspec.operations.inspect.explain import explain, own_variables
from jobctl.jobspec.operations.resolve.job import Where, check, compiled_of
from jobctl.jobspec.operations.resolve.planning import plan_of
from jobctl.views.plan import explain_plan

# Renewed with --update-golden.
EXPLAINED = Path(__file__).parents[1] / "golden" / "cli" / "env-of-every-server.txt"


def test_plan_explains_the_whole_job(jobctl: Any) -> None:
    ran = jobctl("plan", "--explain")
    assert (ran.code, ran.out.splitlines()[-1]) == (10, "supervise small: no supervisor runs")
    assert "0     trainer  localhost  127.0.0.2  0      cpu:0" in ran.out
    assert "1     trainer  localhost  127.0.0.3  1      cpu:0" in ran.out
    document = json.loads(jobctl("plan", "--explain", "-o", "json").out)
    assert [node["host"]["address"] for node in document["nodes"]] == ["127.0.0.2", "127.0.0.3"]


PADDLE = "framework: paddle\nscript: t.py\n"
JOBS = {
    "torch": "framework: torch\nscript: t.py\nnodes: 2\ndevices: cpu:2\nrendezvous: {port: 21000}\n",
    "torch-range": "framework: torch\nscript: t.py\nnodes: '1:3'\n",
    "paddle": f"{PADDLE}nodes: 2\n",
    "paddle-etcd": f"{PADDLE}nodes: '1:2'\netcd: {{managed: {{replicas: 3}}}}\n",
    "paddle-ps": f"{PADDLE}mode: ps\nnodes: 2\ndevices: cpu:2\nps: {{servers: 2, trainers: 4}}\nsecrets: [TOKEN]\n",
    "mindspore": "framework: mindspore\nscript: t.py\nnodes: 2\ndevices: cpu:2\n",
    "jax": "framework: jax\nscript: t.py\nnodes: 2\ndevices: cpu:2\n",
}


@pytest.mark.parametrize("kind", JOBS)
def test_plan_explains_the_same_as_json(jobctl: Any, kind: str) -> None:
    """What the text says of rendezvous, nodes, services and variables, made from the JSON alone."""
    Path("job.yaml").write_text(f"name: wide\n{JOBS[kind]}")
    lines = jobctl("plan", "--explain").out.splitlines()
    whole = json.loads(jobctl("plan", "--explain", "-o", "json").out)
    meeting = whole["rendezvous"]
    assert lines[1] == f"rendezvous {meeting['endpoint']} (the first free port from here on), id {meeting['id']}"
    end = lines.index("", 3)
    listed = [re.split("  +", line) for line in lines[4:end]]
    assert listed == _rows_of(whole, len(re.split("  +", lines[3])))
    assert _environments(lines[end:]) == {tuple(_variables(node["env"])) for node in whole["nodes"]}
    started = {lines[at + 1].strip() for at, line in enumerate(lines) if line == "which starts:"}
    assert started == {" ".join(node["starts"]) for node in whole["nodes"]} - {""}


def _rows_of(whole: Any, columns: int) -> list[list[str]]:
    rows = []
    for node in whole["nodes"]:
        first, last = node["ranks"][0], node["ranks"][-1]
        ports = ", ".join(one.removeprefix(f"{node['address']}:") for one in node["endpoints"]) or "-"
        ranks, devices = str(first) if first == last else f"{first}-{last}", ", ".join(node["devices"])
        rows.append([str(node["index"]), node["role"], node["host"]["name"], node["address"], ranks, devices, ports])
    for one in whole["services"]:
        address, port = one["endpoint"].rsplit(":", 1)
        rows.append([one["name"], one["role"], one["host"]["name"], address, "-", "-", port])
    return [row[:columns] for row in rows]


def _variables(env: dict[str, str]) -> list[str]:
    return [f"  {name}={value}" for name, value in env.items()]


def _environments(lines: list[str]) -> set[tuple[str, ...]]:
    heads = [at + 1 for at, line in enumerate(lines) if line.startswith("env of ")]
    return {tuple(takewhile(lambda line: line.startswith("  "), lines[at:])) for at in heads}


def test_plan_explains_ports_and_ranks_of_servers_and_trainers(jobctl: Any) -> None:
    Path("job.yaml").write_text(f"name: wide\nrendezvous: {{port: 21000}}\n{JOBS['paddle-ps']}")
    whole = json.loads(jobctl("plan", "--explain", "-o", "json").out)
    assert whole["rendezvous"] == {
        "port": 21000,
        "timeout": 600.0,
        "address": "127.0.0.2",
        "endpoint": "127.0.0.2:21000",
        "id": "wide-1",
    }
    assert [(node["role"], node["ranks"], node["endpoints"]) for node in whole["nodes"]] == [
        ("trainer", [0, 1], ["127.0.0.2:21003", "127.0.0.2:21004"]),
        ("trainer", [2, 3], ["127.0.0.3:21005", "127.0.0.3:21006"]),
        ("server", [0], ["127.0.0.2:21001"]),
        ("server", [1], ["127.0.0.3:21002"]),
    ]
    first = whole["nodes"][0]
    assert (first["ports"], first["devices"]) == ([21003, 21004], ["cpu:0", "cpu:1"])
    assert (first["env"]["TOKEN"], first["env"]["PADDLE_TRAINER_ID"]) == ("<secret>", "<rank>")
    assert first["launch"]["rank_env"] == ["PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE"]  # the plan as before, too


def test_nodes_of_a_role_that_are_given_other_things_are_explained_apart(
    jobctl: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.yaml").write_text("name: wide\nframework: torch\nmodule: t\nimage: i\nnodes: 3\ndevices: gpu\n")
    Path("hosts.txt").write_text("a slots=2\nb slots=4\nc slots=2\n")
    explained = explain(plan_of(compiled_of(check("job.yaml", None, Where("compose", Path("hosts.txt"))))))
    explain_plan(explained)
    deliver()
    out = capsys.readouterr().out
    assert [node.ranks for node in explained.nodes] == [(0, 1), (2, 3, 4, 5), (6, 7)]
    assert re.findall("env of (.*):", out) == ["nodes 0, 2", "node 1"]
    assert re.findall("--nproc-per-node ([0-9])", out) == ["2", "4"]


def test_plan_explains_what_each_process_is_given(jobctl: Any, request: pytest.FixtureRequest) -> None:
    """Each variable once, and of the spec's own only those that the launcher lets through."""
    env = "env: {HTTP_PROXY: 'http://p:1', PADDLE_WITH_GLOO: '2', FLAGS_selected_gpus: '7', MASTER_ADDR: x, NCCL_DEBUG: INFO}"
    ps = "mode: ps\nps: {servers: 1, trainers: 1}\ndevices: {kind: gpu, ids: '3'}\n"
    Path("job.yaml").write_text(f"name: wide\nframework: paddle\nscript: train.py\n{ps}{env}\n")
    lines = jobctl("plan", "--explain").out.splitlines()
    server = lines.index("env of every server:")
    found = "\n".join(lines[server + 1 : lines.index("each process runs:")]) + "\n"
    found = re.sub("(?<=JOBCTL_RUN_ID=wide-)[0-9a-f]{8}", "RUN", found)  # of the folder
    if request.config.getoption("--update-golden"):
        EXPLAINED.write_text(found)
    assert found == EXPLAINED.read_text()


EVERYWHERE = """\
name: wide
framework: torch
module: t
image: i
build: {context: ., args: {HF_TOKEN: GEHEIM}}
args: [--api-key, GEHEIM, --token=GEHEIM, --lr, 1]
setup: [export DB_PASS=GEHEIM]
env: {HF_TOKEN: GEHEIM, CACHE: 'redis://me:GEHEIM@r:1'}
env_file: of.env
"""


@pytest.mark.parametrize(
    ("target", "more"),
    [
        ("ssh", "container: {options: [--env=X_TOKEN=GEHEIM]}\n"),
        ("slurm", "slurm: {directory: /shared, options: [--network=token=GEHEIM]}\n"),
        ("kubernetes", "kubernetes: {annotations: {x-token: GEHEIM}}\n"),
    ],
)
def test_what_looks_secret_is_not_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: Any, more: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(EVERYWHERE + more)
    Path("of.env").write_text("DB_PASSWORD=GEHEIM\n")
    Path("Dockerfile").write_text("FROM x\n")
    Path("hosts.txt").write_text("a spare\nb\n")
    hosts = Path("hosts.txt") if target == "ssh" else None
    plan = plan_of(compiled_of(check("job.yaml", None, Where(target, hosts))))
    explained = explain(plan)
    explain_plan(explained)
    deliver()
    out, data = capsys.readouterr().out, json.dumps(explained.data())
    assert ("GEHEIM" in out, "GEHEIM" in data, "GEHEIM" in str(plan)) == (False, False, True)
    assert "  HF_TOKEN=(not shown)\n  " in out
    assert "t (not shown) (not shown) (not shown) --lr 1" in out
    assert explained.data()["nodes"][0]["env"]["CACHE"] == "redis://…@r:1"


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        ("kubeflow", {"JOBCTL_JOB", "JOBCTL_RUN_ID", "JOBCTL_ROLE", "JOBCTL_CHECKPOINT_DIR"}),
        (
            "none",
            {f"JOBCTL_{name}" for name in ("JOB", "RUN_ID", "ROLE", "CHECKPOINT_DIR", "NODE", "NODES", "GENERATION")}
            | {"JOBCTL_ROLE_RANK", "JOBCTL_PROGRESS_FILE"},
        ),
    ],
)
def test_plan_explains_jobctls_own_variables(operator: str, names: set[str]) -> None:
    """Under an operator each pod has no more of them than those that are the same in all."""
    plan, generation = Mock(), Mock(job="small", run_id="small-1", members=[1, 2], checkpoint_dir="/c")
    plan.cluster.operator = operator
    own = own_variables(plan, generation, Mock(role="trainer"))
    assert (set(own), own.get("JOBCTL_NODES", "2")) == (names, "2")
