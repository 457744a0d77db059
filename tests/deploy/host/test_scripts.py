"""The scripts that are run on hosts, with this machine's `sh`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.liveness import EXPIRY


def hand_over(work: Path, ledger: bytes, control: bytes, tries: int) -> subprocess.Popen[bytes]:
    argv = [str(work / "run"), str(len(ledger)), str(len(control)), str(tries)]
    process = subprocess.Popen(SCRIPTS.argv("hand_over", *argv), stdin=-1, stderr=-1)
    assert process.stdin is not None
    process.stdin.write(ledger + control)
    process.stdin.close()
    return process


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("run", "node-0", "node-1", "node-2"):
        (tmp_path / name).mkdir()
    for node, state in ((0, "running"), (1, "waiting")):
        (tmp_path / f"node-{node}" / "report.json").write_text(json.dumps({"node": node, "state": state}))
    return tmp_path


def test_a_generation_is_handed_over(work: Path) -> None:
    process = hand_over(work, b"L" * 70_000, b"{}\n", 0)
    assert process.wait() == 0
    assert {path.name: path.stat().st_size for path in (work / "run").iterdir()} == {
        "ledger.json": 70_000,
        "control.json": 3,
    }


def test_a_hand_over_that_breaks_off_changes_nothing(work: Path) -> None:
    assert hand_over(work, b"old", b"old", 0).wait() == 0
    process = subprocess.Popen(SCRIPTS.argv("hand_over", str(work / "run"), "3", "9", "0"), stdin=-1, stderr=-1)
    said = process.communicate(b"newhalf")[1]
    assert (process.returncode, said) == (1, b"the connection broke off\n")
    assert {path.name: path.read_text() for path in (work / "run").iterdir()} == {
        "ledger.json": "old",
        "control.json": "old",
    }


@pytest.mark.parametrize("state", ["waiting", "setup"])
def test_it_stays_until_launchers_have_begun(work: Path, state: str) -> None:
    (work / "node-1" / "report.json").write_text(json.dumps({"node": 1, "state": state}))
    process = hand_over(work, b"", b"{}\n", 1_000_000)
    while not (work / "run" / "control.json").exists():
        assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    new = work / "node-1" / "new"
    new.write_text(json.dumps({"node": 1, "state": "running"}))
    new.replace(work / "node-1" / "report.json")
    assert (process.wait(), process.stderr.read() if process.stderr else None) == (0, b"")


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("~", "/home/me/h1/job"),
        ("~/a b", "/home/me/a b/h1/job"),
        ("/no/such", "/no/such/h1/job"),
        ("x", "/home/me/x/h1/job"),
    ],
)
def test_the_work_directory_is_found(directory: str, expected: str) -> None:
    argv = SCRIPTS.argv("place", directory, "h1", "job")
    found = subprocess.run(argv, env={"HOME": "/home/me", "PATH": "/usr/bin:/bin"}, capture_output=True, check=True)
    assert found.stdout.decode().splitlines()[0] == expected


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """What scripts see where `docker` is a program that prints its arguments, and its Compose plugin says that it is one."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").symlink_to("/bin/echo")
    plugin = tmp_path / "config" / "cli-plugins" / "docker-compose"
    plugin.parent.mkdir(parents=True)
    plugin.write_text('#!/bin/sh\necho plugin "$@"\n')
    plugin.chmod(0o755)
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    return {"HOME": str(tmp_path), "PATH": path, "DOCKER_CONFIG": str(tmp_path / "config")}


def script_instead(environ: dict[str, str], name: str) -> None:
    program = Path(environ["HOME"]) / "bin" / name
    program.unlink(missing_ok=True)
    program.write_text(f'#!/bin/sh\necho {name}, a script: "$@"\n')
    program.chmod(0o755)


def said(environ: dict[str, str], script: str, *argv: str) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *argv], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.rstrip("\n")


def composes(environ: dict[str, str], *argv: str) -> str:
    return said(environ, SCRIPTS.text("compose"), f"{environ['HOME']}/compose.env", "", "", *argv)


def test_the_compose_plugin_is_run_without_docker(environ: dict[str, str]) -> None:
    assert composes(environ, "docker", "compose", "up", "a b") == "plugin up a b"


def test_compose_files_are_told_of_the_host_in_a_file() -> None:
    """Not by variables: sudo passes none on."""
    root = os.getuid() == 0
    other: dict[str, Any] = {"user": 4242, "group": 4243, "extra_groups": []} if root else {}
    user = "4242:4243" if root else f"{os.getuid()}:{os.getgid()}"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        argv = [
            "/bin/sh",
            "-c",
            SCRIPTS.text("compose"),
            "sh",
            f"{folder}/env",
            "JOBCTL_MEMLOCK=65536 JOBCTL_NICE=20",
            "",
            "env",
            "-i",
            "cat",
            f"{folder}/env",
        ]
        done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=True, **other)
    lines = [line for line in done.stdout.splitlines() if "INFINIBAND" not in line]
    assert lines == [f"JOBCTL_USER={user}", "JOBCTL_MEMLOCK=65536", "JOBCTL_NICE=20"]


@pytest.mark.parametrize(
    ("script", "argv", "expected"),
    [
        (None, ["docker", "-H", "tcp://x", "compose", "up"], "-H tcp://x compose up"),
        ("docker", ["docker", "compose", "up"], "docker, a script: compose up"),
        ("sudo", ["sudo", "-n", "docker", "compose", "up"], "sudo, a script: -n docker compose up"),
        (None, ["podman", "--url", "unix:///d.sock", "compose", "up"], "plugin up"),
    ],
)
def test_docker_runs_its_compose_plugin_where_it_may_mean_more(
    environ: dict[str, str], script: str | None, argv: list[str], expected: str
) -> None:
    if script:
        script_instead(environ, script)
    assert composes(environ, *argv) == expected


@pytest.mark.parametrize(
    ("variables", "argv", "expected"),
    [
        ({"DOCKER_HOST": "unix://HOME/socket"}, [], "HOME/socket"),
        ({"DOCKER_HOST": "tcp://10.0.0.1:2375"}, ["unix://HOME/socket"], "HOME/socket"),
        ({"DOCKER_HOST": "unix://HOME/socket", "DOCKER_CONTEXT": "far"}, [], "HOME/socket"),  # as the CLI has it
        ({"DOCKER_HOST": "unix://HOME/not-there"}, [], ""),
        ({"DOCKER_HOST": "tcp://10.0.0.1:2375"}, [], ""),
        ({"DOCKER_HOST": "ssh://far"}, [], ""),
        ({"DOCKER_CONTEXT": "far"}, [], ""),
    ],
)
def test_the_socket_of_the_engine_is_found(
    environ: dict[str, str], variables: dict[str, str], argv: list[str], expected: str
) -> None:
    home = environ["HOME"]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{home}/socket")
        given = environ | {name: value.replace("HOME", home) for name, value in variables.items()}
        found = socket_of(given, *(word.replace("HOME", home) for word in argv))
    assert found == expected.replace("HOME", home)


def socket_of(environ: dict[str, str], *argv: str) -> str:
    """Return the socket that is found on a host, whichever clients it has."""
    lines = said(environ, SCRIPTS.text("socket"), *argv).splitlines()
    return next((line for line in lines if line.startswith("/")), "")


def clients_of(environ: dict[str, str], *argv: str) -> list[str]:
    """Return which clients are found on a host, and the socket, whatever its processes may do."""
    return [line for line in said(environ, SCRIPTS.text("socket"), *argv).splitlines() if line != "limits"]


@pytest.mark.parametrize(
    ("capabilities", "told"),
    [("000001ffffffffff", True), ("000001fffeffffff", False), ("00000000a80425fb", False), ("0000000001000000", True)],
)
def test_a_host_tells_whether_it_may_raise_limits(
    environ: dict[str, str], tmp_path: Path, capabilities: str, told: bool
) -> None:
    (tmp_path / "status").write_text(f"Name:\tinit\nCapEff:\t0000000001000000\nCapBnd:\t{capabilities}\n")
    script = SCRIPTS.text("socket").replace("/proc/1/status", str(tmp_path / "status"))
    assert ("limits" in said(environ, script).splitlines()) == told


def test_only_docker_knows_where_the_engine_is(environ: dict[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{environ['HOME']}/socket")
        there = environ | {"DOCKER_HOST": f"unix://{environ['HOME']}/socket"}
        assert socket_of(there)
        script_instead(environ, "docker")
        assert socket_of(there) == ""
        (Path(environ["HOME"]) / "bin" / "docker").unlink()
        assert clients_of(there | {"PATH": f"{environ['HOME']}/bin"}) == []


def test_docker_that_is_a_link_to_podman_is_podmans_business(environ: dict[str, str]) -> None:
    """Docker's own socket may be there too: then half of the job would be in one engine, half in the other."""
    docker, podman = (Path(environ["HOME"]) / "bin" / name for name in ("docker", "podman"))
    docker.unlink()
    shutil.copy("/bin/echo", podman)
    docker.symlink_to(podman)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{environ['HOME']}/socket")
        url = f"unix://{environ['HOME']}/socket"
        assert clients_of(environ | {"DOCKER_HOST": url}) == ["podman"]
        assert clients_of(environ | {"CONTAINER_HOST": url}) == ["podman", f"{environ['HOME']}/socket"]
        assert clients_of(environ, url) == ["podman", f"{environ['HOME']}/socket"]
    assert composes(environ, "docker", "compose", "up") == "compose up"


@pytest.mark.parametrize(("config", "found"), [('{"auths": {}}', True), ('{"currentContext": "far"}', False)])
def test_a_context_that_is_in_use_is_dockers_business(environ: dict[str, str], config: str, found: bool) -> None:
    Path(environ["DOCKER_CONFIG"], "config.json").write_text(config)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{environ['HOME']}/socket")
        usual = SCRIPTS.text("socket").replace("/var/run/docker.sock", f"{environ['HOME']}/socket")
        assert usual != SCRIPTS.text("socket")
        assert (said(environ, usual).splitlines()[-1][0] == "/") == found


def began(work: Path, name: str, *argv: str) -> tuple[subprocess.Popen[str], str]:
    """Start a script that stays, and return it and what it says first, less where the directories are."""
    process = subprocess.Popen(SCRIPTS.argv(name, *argv), cwd=work, stdin=-1, stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    return process, lines[-1].rstrip("\n")


@pytest.fixture
def place(tmp_path: Path) -> list[str]:
    """Where the job `job` lies on a host: what find.sh has to know. There is a node, and the folder of the feeds."""
    (tmp_path / "dir").mkdir(0o700)  # as jobctl makes it
    (tmp_path / "dir" / "h1" / "job" / "node-0").mkdir(parents=True)
    (tmp_path / "dir" / "h1" / "job" / "run").mkdir()
    return [str(tmp_path / "dir"), "h1", "job"]


def watch(place: list[str]) -> tuple[subprocess.Popen[str], str]:
    return began(Path("/"), "watch", *place, '{"command": "supervise"}', "me", str(EXPIRY))


def lock(place: list[str], command: str, how: str = "", expiry: float = EXPIRY) -> tuple[subprocess.Popen[str], str]:
    holder = json.dumps({"command": command, "pid": 1})
    return began(Path("/"), "hold", *place, "lock", holder, how, str(expiry))


def let_go(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.communicate(timeout=60)


def test_who_follows_a_job_leaves_while_it_is_taken_down(place: list[str]) -> None:
    work = Path(place[0], "h1", "job")
    watching, said = watch(place)
    down, locked = lock(place, "down")
    assert (said, locked) == ("held", "held")
    assert subprocess.run(SCRIPTS.argv("erase", str(work), str(work)), check=True).returncode == 0
    assert watching.wait(60) is not None
    let_go(watching, down)
    assert not Path(place[0]).exists()


def test_the_lock_is_free_once_nothing_more_is_said(place: list[str]) -> None:
    """The next supervisor takes it at that moment. Here the one that ticks takes long to end, as on a busy host."""
    known, slow = "trap 'quiet=0 heard=1' USR1", "; trap 'sleep 2; exit' TERM"
    argv = SCRIPTS.argv("watch", *place, '{"command": "supervise"}', "me", str(EXPIRY))
    assert sum(known in word for word in argv) == 1
    slowly = [word.replace(known, known + slow) for word in argv]
    with subprocess.Popen(slowly, stdin=-1, stdout=-1, stderr=-1, text=True) as watching:
        assert watching.stdin is not None
        assert watching.stdout is not None
        while watching.stdout.readline() != "t\n":  # then it ticks
            pass
        watching.stdin.close()
        watching.stdout.read()  # to its end
        lock = Path(place[0], "h1", "job", "supervisor.lock")
        assert subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 0


def test_nobody_begins_to_follow_a_job_that_is_taken_down(place: list[str]) -> None:
    down, _ = lock(place, "down")
    watching, said = watch(place)
    assert (said, watching.wait(60)) == ("gone", 0)
    assert not Path(place[0], "h1", "job", "supervisor.lock").exists()
    down.kill()  # it held the lock, and is gone: the job goes on
    let_go(down, watching)
    watching, said = watch(place)
    let_go(watching)
    assert said == "held"


@pytest.mark.parametrize(("expiry", "code"), [(0.1, 124), (EXPIRY, 1)])
def test_what_held_a_lock_says_how_it_ended(place: list[str], expiry: float, code: int) -> None:
    holder, said = lock(place, "up", expiry=expiry)
    assert holder.stdout is not None
    if code == 1:  # nobody will tick any more
        assert holder.stdin is not None
        holder.stdin.close()
    assert (said, holder.stdout.read()) == ("held", f"ended {code}\n")


def test_a_supervisor_creates_no_lock_where_the_job_is_down(place: list[str]) -> None:
    work = Path(place[0], "h1", "job")
    held, said = lock(place, "supervisor", "stay")
    let_go(held)
    assert (said, (work / "lock").exists()) == ("held", True)
    subprocess.run(SCRIPTS.argv("erase", str(work), str(work)), check=True)
    held, said = lock(place, "supervisor", "stay")
    let_go(held)
    assert (said, Path(place[0]).exists()) == ("gone", False)
    held, said = lock(place, "up")  # a new life
    let_go(held)
    assert (said, (work / "lock").exists()) == ("held", True)


def test_the_lock_is_taken_until_nothing_is_left(place: list[str], tmp_path: Path) -> None:
    """Where what is the host's own lies elsewhere, as with a home on NFS; what a command that was killed left goes too."""
    work, own = Path(place[0], "h1", "job"), tmp_path / "own" / "job"
    for folder in (own, work.parent / ".job.17"):
        folder.mkdir(parents=True)
    for file in (own / "lock", own / "supervisor", work / ".hidden", work.parent / ".job.17" / "file"):
        file.write_text("text")
    subprocess.run(SCRIPTS.argv("erase", str(work), str(own)), check=True)
    assert [Path(place[0]).exists(), own.parent.exists()] == [False, False]


@pytest.mark.parametrize(
    ("line", "free"),
    [
        ("/dev/vda 264212084 53907424 52483488 51% /", "52483488"),
        ("//server/My Share 1024 1000 24 98% /mnt", "24"),
        ("tmpfs 1024 1024 0 100% /mnt/a b", "0"),
        ("/dev/sda1 1000 1010 -10 101% /full", "-10"),
        ("none 0 0 0 - /proc", ""),
    ],
)
def test_free_room_is_read_beside_names_with_spaces(tmp_path: Path, line: str, free: str) -> None:
    df = tmp_path / "df"
    df.write_text(f"#!/bin/sh\necho 'Filesystem     1024-blocks  Used Available Capacity Mounted on'\necho '{line}'\n")
    df.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = [
        subprocess.run(SCRIPTS.argv(*argv), env=environ, capture_output=True, text=True, check=True).stdout
        for argv in (("free", str(tmp_path)), ("list_data", str(tmp_path / "data"), ""))
    ]
    assert told == [f"{free} {tmp_path}\n", f"{free}\n"]
