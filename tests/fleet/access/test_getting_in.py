"""Into the nodes of a job on hosts behind a jump host, one of which moves: `forward`, SSH clients, `top`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.fleet.access.editors import BOOTSTRAP, EMACS, NODE, VIM, clients, program, through_socks
from tests.fleet.access.moving_port import PORT, behind_a_jump_host, said_at, serving_job
from tests.fleet.host import Host
from tests.fleet.jobs import Jobs
from tests.tools.ports import free_ports
from tests.tools.waiting import eventually

MEGABYTE = 1 << 20

NODE_1 = NODE  # as SSH clients call it


@pytest.fixture(scope="module")
def jobs(can_have_fleet: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A job that runs on the first two hosts; the third is a spare."""
    with behind_a_jump_host() as hosts:
        made = serving_job(tmp_path_factory.mktemp("job"), hosts)
        up = made.up()
        assert up.returncode == 0, up.stderr
        for host in hosts.hosts[:2]:
            eventually(partial(listens, host))
        yield made
        down = made.run("down", *made.where)
        assert (down.returncode, made.containers(), made.files()) == (0, [[], [], []], []), down.stderr


def listens(host: Host) -> bool:
    """Say whether a node on a host can be asked."""
    return f":{PORT} " in host.run("ss", "-ltn")


def test_ssh_clients_are_inside_of_a_node(jobs: Jobs, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(jobs.ok("ssh-config"))

    def ssh(*args: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        argv = ["ssh", "-F", str(config), *args]
        return subprocess.run(argv, input=typed, env=jobs.environ, capture_output=True, text=True, timeout=120)

    hi = ssh("jobctl-counter-0", "echo hi")
    assert (hi.returncode, hi.stdout, hi.stderr) == (0, "hi\n", "")
    inside = ssh("jobctl-counter-1", "test -d /jobctl && echo inside; cat; echo err >&2; exit 7", typed="typed")
    assert (inside.returncode, inside.stdout, inside.stderr) == (7, "inside\ntyped", "err\n")
    assert ssh("-W", f"localhost:{PORT}", "jobctl-counter-0").stdout == jobs.fleet[0].address
    (tmp_path / "sent").write_bytes(bytes(range(256)) * 1000)
    for how, source, target in (  # by SFTP and as older clients do, for which the image has no programs
        ("-s", str(tmp_path / "sent"), f"{NODE_1}:/tmp/copy"),
        ("-O", f"{NODE_1}:/tmp/copy", str(tmp_path / "back")),
    ):
        argv = ["scp", how, "-q", "-F", str(config), source, target]
        copied = subprocess.run(argv, env=jobs.environ, capture_output=True, text=True, timeout=120)
        assert (copied.returncode, copied.stderr) == (0, "")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()
    argv = ["ssh", "-F", str(config), "-tt", "jobctl-counter-0", "tty; sleep 777; true"]
    with subprocess.Popen(argv, env=jobs.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline().startswith("/dev/pts/")
        eventually(lambda: sleeps(jobs))
        client.terminate()
    eventually(lambda: not sleeps(jobs))


@contextlib.contextmanager
def window(jobs: Jobs, config: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Connect as Remote-SSH of VS Code does for a window, and yield the port of `-D`, and that of the editor's server there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        proxy = free.getsockname()[1]
    argv = ["ssh", "-F", str(config), "-T", "-D", str(proxy), "-o", "ConnectTimeout=300", *options, NODE_1, "sh"]
    with subprocess.Popen(argv, env=jobs.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(BOOTSTRAP)
        client.stdin.close()
        try:
            told = next(filter(None, (re.fullmatch(r"listeningOn==(\d+)==\n", line) for line in client.stdout)))
            yield proxy, int(told[1])
        finally:
            client.terminate()


def repeated(proxy: int, host: str, port: int, data: bytes) -> bytes:
    """Return what the editor's server says to `data`."""
    with through_socks(proxy, host, port) as connection, ThreadPoolExecutor() as pool:

        def send() -> None:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)

        pool.submit(send)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_what_an_editor_does(jobs: Jobs, tmp_path: Path) -> None:
    """Its server is started by a script on standard input, reached through `-D`, and outlives the window that started it."""
    config = tmp_path / "config"
    config.write_text(jobs.ok("ssh-config"))
    control = tempfile.mkdtemp(prefix="jobctl-ssh-")  # pytest's own folders are too long for the name of a socket
    shared, data = ("-o", f"ControlPath={control}/%h"), os.urandom(3 * MEGABYTE)
    again = ["ssh", "-F", str(config), *shared, NODE_1]
    try:
        # New keys after each megabyte, as in a connection that lasts for days.
        with window(jobs, config, "-M", *shared, "-o", "RekeyLimit=1M") as (proxy, port):
            names = ("127.0.0.1", "localhost", "0.0.0.0", "::1")
            with ThreadPoolExecutor() as pool:
                told = list(pool.map(lambda name: repeated(proxy, name, port, data), names))
            assert [one == data for one in told] == [True] * len(names)
            with pytest.raises(ConnectionError):
                through_socks(proxy, jobs.fleet[0].address, port)
            assert subprocess.run([*again[:-1], "-O", "check", NODE_1], capture_output=True).returncode == 0
            several = [subprocess.Popen([*again, f"uname -s; exit {n}"], stdout=subprocess.PIPE) for n in range(4)]
            assert [(one.communicate(timeout=120)[0], one.returncode) for one in several] == [
                (b"Linux\n", n) for n in range(4)
            ]
            (tmp_path / "sent").write_bytes(data)
            copy = ["scp", "-q", "-F", str(config), *shared, str(tmp_path / "sent"), f"{NODE_1}:/tmp/editor/sent"]
            subprocess.run(copy, check=True, timeout=120)
            assert subprocess.run([*again, "cat /tmp/editor/sent"], capture_output=True, timeout=120).stdout == data
        with window(jobs, config) as (proxy, same):
            assert same == port
            assert repeated(proxy, "localhost", port, b"again") == b"again"
    finally:
        shutil.rmtree(control)


def edited(jobs: Jobs, tmp_path: Path, *argv: str) -> tuple[str, str]:
    """Have an editor edit a file in node 1; return what it printed, and the file."""
    config = tmp_path / "config"
    config.write_text(jobs.ok("ssh-config"))
    environ = {**jobs.environ, "PATH": clients(tmp_path / "bin", config), "TERM": "dumb", "HOME": str(tmp_path)}
    node = ["ssh", "-F", str(config), NODE_1]
    files = f"echo 'steps = 0' > settings.py; head -c {MEGABYTE} /dev/zero > large.bin"
    subprocess.run([*node, f"mkdir -p /tmp/edited; cd /tmp/edited; {files}"], check=True, timeout=120)
    done = subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    told = subprocess.run([*node, "cat /tmp/edited/settings.py"], capture_output=True, text=True, timeout=120)
    return done.stdout, told.stdout


@pytest.mark.release("tests/fleet/access/test_getting_in.py::test_what_an_editor_does")
def test_emacs_edits_a_file_in_a_node(jobs: Jobs, tmp_path: Path) -> None:
    said, settings = edited(jobs, tmp_path, program("emacs", "emacs-nox"), "-Q", "--batch", "--eval", EMACS)
    assert said.splitlines() == [
        *(f"ssh has {MEGABYTE} bytes", "(large.bin settings.py)", "7", "steps = 10"),
        *(f"scp has {MEGABYTE} bytes", "(large.bin settings.py)", "7", "steps = 110"),
    ]
    assert settings == "steps = 110\n"


@pytest.mark.release("tests/fleet/access/test_getting_in.py::test_what_an_editor_does")
def test_vim_edits_a_file_in_a_node(jobs: Jobs, tmp_path: Path) -> None:
    _, settings = edited(jobs, tmp_path, program("vim", "vim"), "-u", "NONE", "-es", *VIM)
    assert settings == "steps = 10\n"


def test_top_tells_what_containers_use(jobs: Jobs) -> None:
    def told() -> list[tuple[object, ...]]:
        seen = json.loads(jobs.ok("top", "--once", "-o", "json"))
        return [(node["node"], node["state"], node["cpu"] is not None, bool(node["memory"])) for node in seen["nodes"]]

    # A host that stands still is left out of a look.
    eventually(lambda: told() == [(0, "running", True, True), (1, "running", True, True)])


def sleeps(jobs: Jobs) -> bool:
    """Say whether the command of a client runs in node 0's container, as its host sees it."""
    (container,) = jobs.fleet[0].containers()
    return "sleep 777" in jobs.fleet[0].docker("top", container)


@contextlib.contextmanager
def idle_client(jobs: Jobs, config: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield an SSH client that is connected to node 1, and has no session that would end with the node."""
    config.write_text(jobs.ok("ssh-config"))
    argv = ["ssh", "-v", "-F", str(config), "-N", NODE_1]
    with subprocess.Popen(argv, env=jobs.environ, stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None
        try:
            assert any("Entering interactive session" in line for line in client.stderr)
            yield client
        finally:
            client.terminate()


def test_a_forwarded_port_follows_its_node(jobs: Jobs, tmp_path: Path) -> None:
    """How soon: benchmarks/forward.py."""
    second, third = (host.address for host in jobs.fleet.hosts[1:])
    (port,), log = free_ports(1), tmp_path / "log"
    with log.open("w") as file, jobs.popen("forward", f"{port}:1:{PORT}", stderr=file) as forward:
        try:
            eventually(lambda: said_at(port) == second)
            jobs.fleet[1].kill_sshd()
            eventually(lambda: "; trying again" in log.read_text())
            jobs.fleet[1].start_sshd()
            eventually(lambda: "h2 answers again" in log.read_text())
            assert said_at(port) == second
            with idle_client(jobs, tmp_path / "config") as client:
                (jobs.checkpoints / "fail-1").touch()
                eventually(lambda: jobs.all_train(after=1))
                eventually(lambda: said_at(port) == third)
                assert "error: the container of node 1 on h2 has ended\n" in client.communicate(timeout=120)[1]
        finally:
            forward.send_signal(signal.SIGINT)
        assert forward.wait(60) == 130
    told = log.read_text().splitlines()
    assert told[0] == f"127.0.0.1:{port} -> port {PORT} of node 1 on h2"
    assert f"node 1 is on h3 now: 127.0.0.1:{port} leads there" in told
