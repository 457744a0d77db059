"""Into nodes on this machine: `forward` to ports at their own addresses, `ssh`, and SSH clients."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from tests.tools.ports import free_ports

# Answers each connection with its node's number, at its node's address and a port that the node has written down.
SERVER = """\
import os, socket
node = os.environ["JOBCTL_NODE"]
listener = socket.create_server(("127.0.0.%d" % (int(node) + 2), 0))
with open("port-" + node + ".new", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.replace("port-" + node + ".new", "port-" + node)
while True:
    connection, _ = listener.accept()
    connection.sendall(b"node " + node.encode())
    connection.close()
"""


def said_at(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        return connection.recv(100)


@pytest.fixture
def serving(jobs: Any, eventually: Any) -> list[int]:
    """Two nodes that listen, and their ports."""
    (jobs.directory / "counter.py").write_text(SERVER)
    jobs.ok("up")
    paths = [jobs.directory / f"port-{node}" for node in (0, 1)]
    eventually(lambda: all(path.exists() for path in paths))
    return [int(path.read_text()) for path in paths]


def test_ports_lead_to_their_nodes_until_it_is_interrupted(jobs: Any, serving: list[int]) -> None:
    theirs, ours = serving, free_ports(2)
    words = [f"{ours[node]}:{node}:{theirs[node]}" for node in (0, 1)]
    with jobs.popen("forward", *words) as forward:
        told = [forward.stderr.readline() for _ in words]
        assert told == [f"127.0.0.1:{ours[n]} -> port {theirs[n]} of node {n} on localhost\n" for n in (0, 1)]
        assert [said_at(port) for port in ours] == [b"node 0", b"node 1"]
        taken = jobs.run("forward", "counter", words[0])
        assert taken.returncode == 2
        assert f"error: port {ours[0]} of this machine is in use\n" in taken.stderr
        forward.send_signal(signal.SIGINT)
        assert (forward.wait(120), forward.stdout.read(), forward.stderr.read()) == (130, "", "")
    for args, message in (
        ([f"{ours[0]}:7"], "error: the job has no node 7\nhint: it has the nodes 0, 1\n"),
        ([], "error: no port is given\nhint: write PORT, PORT:NODE or PORT:NODE:PORT"),
        (["nine"], "error: `nine` does not say what to forward\n"),
    ):
        refused = jobs.run("forward", "counter", *args)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr


@pytest.mark.long
def test_clients_and_shells_are_inside_of_a_node(jobs: Any, serving: list[int]) -> None:
    shell = [sys.executable, "-m", "jobctl", "ssh", "counter", "--node", "1"]
    typed = {"input": b"echo node $JOBCTL_NODE; exit 5\n", "cwd": jobs.directory, "env": jobs.environ}
    told = subprocess.run(shell, stdout=subprocess.PIPE, check=False, **typed)
    assert (told.returncode, told.stdout.splitlines()[-1]) == (5, b"node 1")
    if shutil.which("ssh") is None:
        (pytest.fail if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip)("there is no ssh")
    config = jobs.directory / "config"
    config.write_text(jobs.ok("ssh-config", "counter"))
    control = tempfile.mkdtemp(prefix="jobctl-ssh-")  # pytest's own folders are too long for the name of a socket
    client = ["ssh", "-F", str(config), "-o", f"ControlPath={control}/%h"]
    command = [*client, "-o", "ControlMaster=auto", "-o", "ControlPersist=60", "jobctl-counter-1"]
    try:
        told = subprocess.run([*command, "sh -s"], capture_output=True, check=False, **typed)
        assert (told.returncode, told.stdout, told.stderr) == (5, b"node 1\n", b"")
        port = ["-W", f"localhost:{serving[1]}", "jobctl-counter-1"]  # over the same connection
        assert subprocess.run([*client, *port], env=jobs.environ, capture_output=True).stdout == b"node 1"
    finally:
        subprocess.run([*client, "-O", "exit", "jobctl-counter-1"], capture_output=True, check=False)
        shutil.rmtree(control)
