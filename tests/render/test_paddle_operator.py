"""What runs below paddle-operator: who waits for whom, and what its documentation shows."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.render.clusters import SERVED, of_text

from .manifests import CASES, objects


def free_port() -> int:
    """Return a port that is free, as is the one by which a server there is told of the end."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("", port + BELL))
            except (OSError, OverflowError):
                continue
            return int(port)


BELL = 17
SERVES = """\
import socket, sys, time
with socket.create_server(("", int(sys.argv[1]))):
    print("serves", flush=True)
    time.sleep(600)
"""


def test_below_paddle_operator_servers_and_trainers_begin_and_end_together() -> None:
    """It starts all at once, and Paddle's trainers fail where nobody listens yet; servers never end by themselves."""
    (made,) = objects(CASES["served-paddle-operator"])
    worker, server = (made["spec"][role]["template"]["spec"]["containers"][0] for role in ("worker", "ps"))
    assert (server["command"], server["args"]) == (worker["command"], worker["args"])
    assert worker["args"][-4:] == ["600", "python3", "-u", "/train.py"]
    ports = [free_port() for _ in range(2)]
    shared = {
        **os.environ,
        "PADDLE_PSERVERS_IP_PORT_LIST": f"127.0.0.1:{ports[0]},127.0.0.2:{ports[1]}",
        "PADDLE_TRAINERS_NUM": "2",
    }

    def begin(role: str, patience: str, *argv: str, **told: str) -> subprocess.Popen[str]:
        whole = [sys.executable, *worker["args"][:2], patience, *argv]
        env = {**shared, "TRAINING_ROLE": role, **told}
        return subprocess.Popen(whole, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def trainer(number: int, patience: str, *argv: str) -> tuple[int, str, str]:
        process = begin("TRAINER", patience, *argv, PADDLE_TRAINER_ID=str(number))
        said, problem = process.communicate(timeout=60)
        return process.returncode, said, problem

    code, said, problem = trainer(0, "0", "echo", "trains")
    assert (code, said, problem.startswith(f"server 127.0.0.1:{ports[0]} does not answer: ")) == (1, "", True)
    serves = [sys.executable, "-c", SERVES]
    told: tuple[dict[str, str], ...] = ({"PADDLE_PORT": str(ports[0])}, {"PADDLE_PORT": "1", "POD_IP": "127.0.0.2"})
    servers = [begin("PSERVER", "600", *serves, str(port), **more) for port, more in zip(ports, told, strict=True)]
    try:
        assert trainer(0, "60", "echo", "trains") == (0, "trains\n", "")
        assert trainer(0, "60", "echo", "trains") == (0, "trains\n", "")  # one trainer is not two
        with socket.create_connection(("127.0.0.1", ports[0] + BELL)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1")
        assert trainer(1, "60", "sh", "-c", "exit 3") == (3, "", "")
        assert [process.poll() for process in servers] == [None, None]
        assert trainer(1, "60", "echo", "trains") == (0, "trains\n", "")
        assert [(process.communicate(timeout=60), process.returncode) for process in servers] == [
            (("serves\n", ""), 0),
            (("serves\n", ""), 0),
        ]
    finally:
        for process in servers:
            process.terminate()
    # Those that have ended by themselves need not be told; a server that fails is no end.
    alone = begin("PSERVER", "600", "sh", "-c", "exit 5", PADDLE_PORT=str(ports[0]))
    assert (alone.communicate(timeout=60), alone.returncode) == (("", ""), 5)


def test_below_paddle_operator_both_begin_at_once_where_servers_wait_too() -> None:
    both = of_text(SERVED.replace("FRAMEWORK", "paddle").replace("OPERATOR", "paddle-operator").replace(
        "INTRANET", "Host").replace("servers: 2", "gloo: 2, servers: 2"))  # fmt: skip
    assert objects(both)[0]["spec"]["worker"]["template"]["spec"]["containers"][0]["args"][2] == ""


# The two manifests of PaddlePaddle's documentation on deployment come out of two short specs.

RESNET_SPEC = """\
name: resnet
framework: paddle
image: registry.baidubce.com/paddle-operator/demo-resnet:v1
script: train_fleet.py
nodes: 2
devices: gpu:1
container: {python: python}
kubernetes: {operator: paddle-operator, clean_pod_policy: Never}
"""
RESNET = """\
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: resnet
spec:
  cleanPodPolicy: Never
  worker:
    replicas: 2
    template:
      spec:
        containers:
          - name: paddle
            image: registry.baidubce.com/paddle-operator/demo-resnet:v1
            command: [python]
            args: ["-m", "paddle.distributed.launch", "train_fleet.py"]
            volumeMounts: [{mountPath: /dev/shm, name: dshm}]
            resources: {limits: {nvidia.com/gpu: "1"}}
        volumes: [{name: dshm, emptyDir: {medium: Memory}}]
"""
# Its image has a command of its own, which a spec has to name.
WIDE_AND_DEEP_SPEC = """\
name: wide-ande-deep
framework: paddle
mode: ps
image: registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1
script: train.py
ps: {servers: 2, trainers: 2, gloo: 1}
kubernetes: {operator: paddle-operator, intranet: PodIP, clean_pod_policy: OnCompletion}
"""
WIDE_AND_DEEP = """\
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: wide-ande-deep
spec:
  withGloo: 1
  intranet: PodIP
  cleanPodPolicy: OnCompletion
  worker: &two
    replicas: 2
    template:
      spec:
        containers:
          - {name: paddle, image: "registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1"}
  ps: *two
"""


def common(wanted: Any, made: Any) -> Any:
    """Return the part of `made` that `wanted` says anything about."""
    if isinstance(wanted, dict) and isinstance(made, dict):
        return {key: common(wanted[key], made[key]) for key in made if key in wanted}
    if isinstance(wanted, list) and isinstance(made, list) and len(wanted) == len(made):
        return [common(one, other) for one, other in zip(wanted, made, strict=True)]
    return made


@pytest.mark.parametrize(("spec", "documented"), [(RESNET_SPEC, RESNET), (WIDE_AND_DEEP_SPEC, WIDE_AND_DEEP)])
def test_what_the_documentation_shows_comes_out_of_a_short_spec(spec: str, documented: str) -> None:
    wanted = yaml.load(documented, yaml.CSafeLoader)
    (made,) = objects(of_text(spec))
    assert common(wanted, made) == wanted
    # Of the job itself there is nothing else; what is more in the pods is ours.
    assert made["spec"].keys() == wanted["spec"].keys()
