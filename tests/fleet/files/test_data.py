"""What goes to hosts and comes back: code, secrets, logs, and whose files they are."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.jobs import COUNTER, SPEC, Jobs
from tests.fleet.machine import IMAGE
from tests.tools.waiting import eventually

VALUE = f"s3cr3t-{os.urandom(6).hex()}"  # in the argv of no other run of these tests


@pytest.mark.parametrize("target", ["compose", "ssh"])
def test_a_secret_is_nowhere_but_in_one_file(jobs: Jobs, target: str) -> None:
    script = (
        "import os; open(os.environ['JOBCTL_CHECKPOINT_DIR'] + '/seen', 'w').write(str(len(os.environ['TOKEN'])))\n"
    )
    (jobs.code / "counter.py").write_text(script + (jobs.code / "counter.py").read_text())
    jobs.spec(SPEC + "secrets: [TOKEN]\n")
    jobs.environ["TOKEN"] = VALUE
    texts = [
        jobs.up("--target", target, "-o", "json", check=True),
        jobs.run("plan", "--explain"),
        jobs.run("status", "-o", "json"),
    ]
    del jobs.environ["TOKEN"]
    assert [done.returncode for done in texts] == [0, 0, 0], texts[0].stderr
    eventually(lambda: (jobs.checkpoints / "seen").exists())
    texts += [jobs.run("logs", "--launcher"), jobs.run("events", "-o", "json"), jobs.run("restart")]
    texts += [
        jobs.run("render", "--hosts", "hosts.txt", "--out", "rendered"),
        jobs.run("exec", "--node", "0", "--", "env"),
    ]
    for host in jobs.fleet.hosts:
        inspected = host.docker("inspect", *host.containers())
        texts.append(subprocess.CompletedProcess("inspect", 0, inspected, ""))
        texts.append(subprocess.CompletedProcess("logs", 0, host.docker("logs", host.containers()[0]), ""))
    assert [done.args for done in texts if VALUE in done.stdout + done.stderr] == []
    with_it = {path for root in (jobs.directory, *(host.dir for host in jobs.fleet.hosts)) for path in holding(root)}
    secret = [host.home / ".jobctl" / host.name / "counter" / "secrets" / "secrets.json" for host in jobs.fleet.hosts]
    assert with_it == set(secret)
    assert [stat.S_IMODE(path.stat().st_mode) for path in secret] == [0o1600, 0o1600]
    assert not any(VALUE.encode() in argv for argv in argvs())


def argvs() -> Iterator[bytes]:
    """Yield what all processes of this machine were started with; some end while they are looked at."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield path.read_bytes()


def holding(root: Path) -> Iterator[Path]:
    """Yield the files below `root` that hold the secret, those of running engines and mounts included."""
    done = subprocess.run(
        ["grep", "-rlF", "--devices=skip", VALUE, str(root)], capture_output=True, text=True, check=False
    )
    lent = f"{root.parent}/lent"
    yield from (Path(line) for line in done.stdout.splitlines() if not line.startswith(lent))


def test_code_is_sent_where_it_changed(jobs: Jobs) -> None:
    big = jobs.code / "weights.bin"
    big.write_bytes(os.urandom(3 << 20))
    (jobs.code / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (jobs.code / "run.sh").chmod(0o755)
    (jobs.code / "deep" / "er").mkdir(parents=True)
    (jobs.code / "deep" / "er" / "a file with 'quotes' and \n newline.txt").write_text("x")
    (jobs.code / "link").symlink_to("deep/er")
    (jobs.code / "left-out.log").write_text("no")
    (jobs.code / ".dockerignore").write_text("*.log\n")
    jobs.ok("validate")
    up = jobs.up()
    assert up.returncode == 0, up.stderr
    code = jobs.fleet[0].home / ".jobctl" / "h1" / "counter" / "code"
    (first,) = code.iterdir()
    names = sorted(path.relative_to(first).as_posix() for path in first.rglob("*"))
    left_out = ("left-out.log", "job.yaml", "hosts.txt")
    every = [path for path in jobs.code.rglob("*") if path.name not in left_out]
    assert names == sorted(path.relative_to(jobs.code).as_posix() for path in every)
    assert jobs.ok("exec", "--node", "0", "--", "./run.sh") == "ran\n"
    before = (first / "weights.bin").read_bytes()
    # What the job itself has changed in its copy does not get into the next one.
    (first / "weights.bin").write_bytes(b"spoilt")
    (jobs.code / "counter.py").write_text((jobs.code / "counter.py").read_text() + "# changed\n")
    (jobs.code / "run.sh").unlink()
    assert jobs.run("up").returncode == 0
    second = next(path for path in code.iterdir() if path != first)
    assert (second / "weights.bin").read_bytes() == before
    assert not (second / "run.sh").exists()
    assert (second / "link").is_symlink()


def test_logs_of_many_lines_are_followed_whole(jobs: Jobs) -> None:
    """Two ranks print as fast as they can; what `logs -f` prints has every line once, though its link is cut."""
    lines = 40_000
    (jobs.code / "counter.py").write_text(
        "import os, time\nrank, cut = os.environ['JOBCTL_NODE'], os.environ['JOBCTL_CHECKPOINT_DIR'] + '/cut'\n"
        f"for i in range({lines}):\n    print(rank, i, flush=i % 100 == 0)\n    if i % 100 == 0: time.sleep(0.005)\n"
        f"    while i == {lines // 2} and not os.path.exists(cut): time.sleep(0.05)\n"
    )
    assert jobs.up("--no-supervise").returncode == 0
    out = jobs.directory / "followed"
    with out.open("wb") as file:
        follow = jobs.popen("logs", "-f", stdout=file)
        eventually(lambda: all(f" | {rank} 1\n" in out.read_text() for rank in (0, 1)))
        jobs.fleet[1].pull_cable()
        (jobs.checkpoints / "cut").touch()  # they print on while it is out
        time.sleep(3)
        jobs.fleet[1].plug_cable()
        follow.communicate(timeout=300)
    got: dict[str, list[int]] = {"0": [], "1": []}
    for line in out.read_text().splitlines():
        rank, number = line.split(" | ")[1].split()
        got[rank].append(int(number))
    assert {rank: numbers == list(range(lines)) for rank, numbers in got.items()} == {"0": True, "1": True}


@pytest.mark.parametrize(
    "target",
    [
        "compose",
        pytest.param(
            "ssh",
            marks=pytest.mark.release(
                "tests/fleet/files/test_data.py::test_a_user_in_the_group_docker_leaves_nothing_of_root[compose]"
            ),
        ),
    ],
)
def test_a_user_in_the_group_docker_leaves_nothing_of_root(jobs: Jobs, target: str) -> None:
    text = jobs.fleet.ssh_config.read_text()
    jobs.fleet.ssh_config.write_text(text.replace("User root", "User ml"))
    jobs.checkpoints = jobs.fleet.dir / "checkpoints"  # where others may look too
    jobs.checkpoints.mkdir(exist_ok=True)
    jobs.checkpoints.chmod(0o777)
    try:
        for host in jobs.fleet.hosts:
            os.chmod(host.socket, 0o660)
            plugin = Path(".docker/cli-plugins/docker-compose")
            (host.dir / "ml" / plugin).parent.mkdir(parents=True, exist_ok=True)
            (host.dir / "ml" / plugin).unlink(missing_ok=True)
            (host.dir / "ml" / plugin).hardlink_to(host.home / plugin)
        jobs.spec(SPEC + "container: {{user: self}}\n")
        up = jobs.up("--target", target)
        assert up.returncode == 0, up.stderr
        assert jobs.ok("exec", "--node", "0", "--", "id", "-u") == "4242\n"
        homes = [host.dir / "ml" for host in jobs.fleet.hosts]
        assert {owner for home in homes for owner in owners(home / ".jobctl")} == {4242}
        assert jobs.run("down").returncode == 0
        # As root in the containers, but not on the hosts: what they wrote is removed all the same.
        jobs.spec(SPEC + "outputs: [runs/]\n")
        up = jobs.up("--target", target)
        assert up.returncode == 0, up.stderr
        jobs.ok("exec", "--node", "1", "--", "sh", "-c", "umask 077; echo kept > runs/private")
        pull = jobs.command("pull", codes=(4,))
        assert "outputs/runs/private: Cannot open: Permission denied" in pull.stderr
        down = json.loads(jobs.ok("down", "-o", "json"))
        assert (Path(down["logs"]) / "outputs" / "h2" / "runs" / "private").read_text() == "kept\n"
        assert [path for home in homes for path in home.glob(".jobctl/**/*")] == []
    finally:
        jobs.fleet.ssh_config.write_text(text)
        for host in jobs.fleet.hosts:
            shutil.rmtree(host.dir / "ml" / ".docker")


def owners(root: Path) -> Iterator[int]:
    """Yield whose the files below a folder are; some are replaced while one looks."""
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            yield path.lstat().st_uid


def test_run_has_what_the_job_would_have(jobs: Jobs) -> None:
    jobs.spec(SPEC + "secrets: [TOKEN]\nenv: {{PLAIN: 'a b'}}\n")
    jobs.environ["TOKEN"] = VALUE
    where = (*jobs.where, "--node", "1")
    script = "hostname; pwd; ls counter.py; echo $PLAIN; echo ${#TOKEN}; cat; exit 3"
    process = jobs.popen("run", *where, "--", "sh", "-c", script, stdin=subprocess.PIPE)
    out, err = process.communicate("typed", timeout=180)
    assert (process.returncode, out.splitlines()) == (
        3,
        ["counter-1", "/workspace", "counter.py", "a b", str(len(VALUE)), "typed"],
    ), err
    assert (jobs.containers(), jobs.files()) == ([[], []], [])


def test_events_and_status_as_json(jobs: Jobs) -> None:
    assert jobs.up().returncode == 0
    events = [json.loads(line) for line in jobs.ok("events", "-o", "json").splitlines()]
    assert "step" in {event["event"] for event in events}
    jobs.end()
    watch = jobs.ok("status", "--watch", "-o", "json").splitlines()
    assert json.loads(watch[-1])["phase"] == "succeeded"


def test_an_image_that_one_host_has_comes_to_the_others(jobs: Jobs) -> None:
    """From host to host: what is handed out by the image's own Python, as the host has none, does not come here."""
    first, second = jobs.fleet.hosts
    no_python = second.dir / "bin" / "python3"
    no_python.symlink_to("/bin/false")
    name = "jobctl-test-copied:1"
    second.docker("run", "--net=host", "--name=adds", IMAGE, "sh", "-c", "head -c 99999 /dev/urandom >/added")
    second.docker("commit", "adds", name)
    second.docker("rm", "adds")
    jobs.spec(SPEC.replace(IMAGE, name))
    counter = Path(f"/sys/class/net/{jobs.fleet.bridge}/statistics/tx_bytes")  # what leaves this machine
    sent = int(counter.read_text())
    prepared = jobs.run("prepare", *jobs.where)
    assert (prepared.returncode, jobs.containers()) == (0, [[], []]), prepared.stderr
    first.docker("image", "inspect", name)  # which fails if it is not there
    versions = [[path.name for path in (host.home / ".jobctl").glob("*/counter/code/*")] for host in (first, second)]
    assert versions[0] == versions[1] != []
    assert jobs.up().returncode == 0
    assert int(counter.read_text()) - sent < 5_000_000
    no_python.unlink()
    assert len({host.docker("image", "inspect", "--format", "{{.Id}}", name) for host in jobs.fleet.hosts}) == 1
    jobs.trains()
    assert jobs.run("down").returncode == 0
    for host in jobs.fleet.hosts:
        host.docker("rmi", "--force", name)


@pytest.mark.parametrize(
    "target",
    [
        "compose",
        pytest.param(
            "ssh",
            marks=pytest.mark.release(
                "tests/fleet/files/test_data.py::test_restarts_use_the_image_that_up_found[compose]"
            ),
        ),
    ],
)
def test_restarts_use_the_image_that_up_found(jobs: Jobs, target: str) -> None:
    """Somebody gives the image's name to another one, and a container dies: the new one is as the old one was."""
    name = f"jobctl-test-pinned:{target}"
    for host in jobs.fleet.hosts:
        host.docker("tag", IMAGE, name)
    jobs.spec(SPEC.replace(IMAGE, name))
    assert jobs.up("--target", target).returncode == 0
    host = jobs.fleet[1]
    (container,) = host.containers()
    meant = host.docker("inspect", "--format", "{{.Image}}", container)
    host.docker("commit", "--change", "LABEL newer=1", container, name)
    assert host.docker("image", "inspect", "--format", "{{.Id}}", name) != meant
    host.docker("kill", container)
    jobs.trains(generation=2)
    assert host.docker("inspect", "--format", "{{.Image}}", container) == meant
    assert jobs.steps() == []
    assert jobs.run("restart", "--node", "1").returncode == 0
    assert host.docker("inspect", "--format", "{{.Image}}", container) == meant
    assert jobs.run("up", "--recreate").returncode == 0  # which looks anew
    assert host.docker("inspect", "--format", "{{.Image}}", container) != meant
    assert jobs.run("down").returncode == 0
    for host in jobs.fleet.hosts:
        host.docker("rmi", name)


@pytest.mark.parametrize(
    "login",
    [
        "ml",
        pytest.param(
            "root",
            marks=pytest.mark.release(
                "tests/fleet/files/test_data.py::test_a_user_by_number_writes_where_it_has_to[ml]"
            ),
        ),
    ],
)
def test_a_user_by_number_writes_where_it_has_to(jobs: Jobs, login: str) -> None:
    text = jobs.fleet.ssh_config.read_text()
    jobs.fleet.ssh_config.write_text(text.replace("User root", f"User {login}"))
    jobs.checkpoints = jobs.fleet.dir / f"checkpoints-{login}"
    jobs.checkpoints.mkdir()
    jobs.checkpoints.chmod(0o777)
    jobs.environ["TOKEN"] = VALUE
    script = "import os\nassert os.environ['TOKEN'] and os.getuid() == 4343\nopen('runs/file', 'w').write('kept')\n"
    (jobs.code / "counter.py").write_text(script + (jobs.code / "counter.py").read_text())
    try:
        for host in jobs.fleet.hosts:
            os.chmod(host.socket, 0o660)
        jobs.fleet[0].docker("create", "--name", "jobctl-counter-root", IMAGE, "true")  # of a command that was killed
        jobs.spec(SPEC + "container: {{user: '4343:4344'}}\nsecrets: [TOKEN]\noutputs: [runs/]\n")
        up = jobs.up("--target", "ssh")
        assert up.returncode == 0, up.stderr
        (jobs.code / "counter.py").write_text(script + COUNTER + "# changed\n")
        jobs.ok("up")
        # A process that runs may not have written yet.
        eventually(lambda: "generation 2 from" in jobs.ok("logs", "--node", "1"))
        homes = [host.dir / "ml" if login == "ml" else host.home for host in jobs.fleet.hosts]
        secret = homes[0] / ".jobctl" / "h1" / "counter" / "secrets" / "secrets.json"
        assert (stat.S_IMODE(secret.stat().st_mode), secret.stat().st_uid) == (0o1600, 4343)
        report = json.loads(jobs.ok("down", "-o", "json"))
        assert (Path(report["logs"]) / "outputs" / "h2" / "runs" / "file").read_text() == "kept"
        assert [path for home in homes for path in home.glob(".jobctl/**/*")] == []
    finally:
        jobs.fleet.ssh_config.write_text(text)
        shutil.rmtree(jobs.checkpoints)


def interrupted(jobs: Jobs, host: str) -> int:
    """Kill `prepare` while the large file goes slowly from h2 to a host; return the number of what has arrived of it."""
    jobs.fleet[1].slow_link("16mbit")  # half a minute for all of it
    command = jobs.popen("prepare", *jobs.where, "--target", "ssh", "--skip-check", stdout=None, stderr=None)
    home = next(one.home for one in jobs.fleet.hosts if one.name == host)

    def arriving() -> list[Path]:
        return [path for path in home.glob(".jobctl/*/.data/*/incomplete/huge.bin") if path.stat().st_size > 0]

    try:
        (begun,) = eventually(arriving)
        command.kill()
        command.wait()
    finally:
        jobs.fleet[1].slow_link(None)
    assert not any(path.name != "incomplete" for path in begun.parents[1].iterdir() if path.is_dir())
    return begun.stat().st_ino


def test_data_is_sent_once_and_kept_between_jobs(jobs: Jobs) -> None:
    """`prepare` sends it. A container reads it and cannot change it; what changes is sent again alone; what no job has is removed.

    A folder of a host goes to the other one the same way, and goes on after a kill.
    """
    data = jobs.directory / "images"
    data.mkdir()
    (data / "big.bin").write_bytes(b"x" * 3_000_000)
    (data / "labels").write_text("1 2 3")
    jobs.spec(SPEC + f"data: ['{data}:/data']\n")
    jobs.ok("prepare", *jobs.where, "--target", "ssh")
    assert [len(list(host.home.rglob("big.bin"))) for host in jobs.fleet.hosts] == [1, 1]
    jobs.ok("up", *jobs.where, "--target", "ssh")
    look = (
        "import os; print(open('/data/labels').read(), os.path.getsize('/data/big.bin'), os.access('/data', os.W_OK))"
    )
    read = ["exec", "--node", "1", "--", "python3", "-c", look]
    assert jobs.ok(*read) == "1 2 3 3000000 False\n"
    (data / "labels").write_text("4 5 6")
    jobs.ok("up", *jobs.where, "--target", "compose")
    assert jobs.ok(*read) == "4 5 6 3000000 False\n"
    listed = json.loads(jobs.ok("data", *jobs.where, "-o", "json"))["hosts"]
    assert [[one["jobs"] for one in host["data"] if one["jobs"]] for host in listed] == [[["counter"]], [["counter"]]]
    assert [len(host["data"]) for host in listed] == [2, 2]
    kept = list(jobs.fleet.hosts[1].home.rglob("big.bin"))
    assert [path.stat().st_nlink for path in kept] == [2, 2]  # one file, which was sent once
    in_use = jobs.run("data", "remove", listed[0]["data"][0]["name"], "--yes", *jobs.where)
    assert (in_use.returncode, "job `counter` has data" in in_use.stderr) == (2, True), in_use.stderr
    jobs.ok("down")
    removed = json.loads(jobs.ok("data", "remove", "--yes", *jobs.where, "-o", "json"))["hosts"]
    assert [len(host["data"]) for host in removed] == [2, 2]
    assert jobs.run("data", *jobs.where).stderr == "these hosts keep no data\n"
    # The same folder on a host: the other one gets it, and the host itself a copy that nobody changes.
    there = jobs.fleet.hosts[1].home / "images"
    shutil.move(data, there)
    jobs.spec(SPEC + f"data: ['h2:{there}:/data']\n")
    (there / "huge.bin").write_bytes(bytes(60_000_000))
    begun = interrupted(jobs, "h1")
    jobs.ok("up", *jobs.where, "--target", "ssh")
    (whole,) = jobs.fleet.hosts[0].home.rglob("huge.bin")
    assert (whole.stat().st_ino, whole.stat().st_size) == (begun, 60_000_000)  # it was continued
    assert jobs.ok(*read) == "4 5 6 3000000 False\n"
    assert jobs.ok("exec", "--node", "0", *read[3:]) == "4 5 6 3000000 False\n"
    assert jobs.run("plan").returncode == 0
    jobs.ok("down")
    jobs.ok("data", "remove", "--yes", *jobs.where)
    shutil.rmtree(there)
    gone = jobs.run("up", *jobs.where)
    assert (gone.returncode, f"there is no directory h2:{there} to send: nothing was changed" in gone.stderr) == (
        2,
        True,
    )
    assert jobs.happened("up")[-1] == jobs.happened("up")[2]
