"""What the user wrote is what the process receives, byte for byte, whichever way it is started."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.artefact import control_json, render
from jobctl.jobspec.render.launcher import launcher
from tests.render.engine import engine
from tests.render.hostile import BYTES, PATH, VALUES, env_of, hostile_plan
from tests.render.plans import node, plan, with_container, with_launch

# Writes what a process receives as JSON, bytes as Latin-1 so that none is lost.
DUMP = """\
import json, os, sys
raw = lambda path: open(path, "rb").read().decode("latin-1").split("\\0")[:-1]
json.dump({"argv": raw("/proc/self/cmdline"), "env": raw("/proc/self/environ")}, open(sys.argv[1], "w"))
"""


def content(wanted: Plan, ending: str) -> bytes:
    (found,) = [a.content for a in render(wanted, first_generation(wanted)) if a.path.endswith(ending)]
    return found


def received(path: Path) -> tuple[list[bytes], dict[bytes, bytes]]:
    data = json.loads(path.read_text())
    pairs = [entry.encode("latin-1").partition(b"=") for entry in data["env"]]
    return [word.encode("latin-1") for word in data["argv"]], {name: value for name, _, value in pairs}


def as_bytes(pairs: tuple[tuple[str, str], ...]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in pairs}


def hostile_part(env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {name: value for name, value in env.items() if name.startswith(b"HOSTILE_")}


def check_launch(text: bytes | str, values: tuple[str, ...]) -> None:
    """What JOBCTL_LAUNCH says is what the plan says."""
    launch = json.loads(text)
    assert launch["command"] == ["python3", "-c", *values]
    assert launch["env"] == [list(pair) for pair in env_of(values)]
    assert launch["setup"] == list(values)
    assert launch["workdir"] == PATH


# Through Compose.


@pytest.fixture(scope="module")
def service(compose: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The service of the hostile plan as Compose resolves it."""
    directory = tmp_path_factory.mktemp("compose")
    (directory / "compose.yaml").write_bytes(content(hostile_plan("compose"), "compose.yaml"))
    done = subprocess.run(
        [*compose, "config", "--format", "json"],
        cwd=directory,
        env={**os.environ, "HOME": "/wrong", "X": "wrong"},
        capture_output=True,
        check=True,
    )
    # `config` prints something to be read by Compose again, so it doubles every `$`.
    return json.loads(done.stdout.replace(b"$$", b"$"))["services"]["node-0"]


def test_process_receives_through_compose(service: Any, tmp_path: Path) -> None:
    (tmp_path / "dump.py").write_text(DUMP)
    argv = [
        sys.executable,
        str(tmp_path / "dump.py"),
        str(tmp_path / "dump.json"),
        *service["command"],
        *VALUES,
    ]
    subprocess.run(argv, env=service["environment"], check=True)
    words, env = received(tmp_path / "dump.json")
    assert words[3:] == [
        *(
            b"python3",
            b"/jobctl/launcher.py",
            b"--control",
            b"/jobctl/run/control.json",
            b"--dir",
            b"/jobctl/node",
        ),
        *map(os.fsencode, VALUES),
    ]
    assert hostile_part(env) == as_bytes(env_of(VALUES))
    check_launch(env[b"JOBCTL_LAUNCH"], VALUES)


def test_paths_and_labels_through_compose(service: Any) -> None:
    assert service["working_dir"] == PATH
    assert service["labels"]["jobctl.owner"] == VALUES[6]
    assert service["volumes"][-1] == {
        "type": "bind",
        "source": PATH,
        "target": PATH + "/target",
        "read_only": True,
        "bind": {},
    }


def test_engine_receives_through_compose(
    compose: tuple[str, ...], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What Compose then asks the engine for, image's entrypoint included."""
    (tmp_path / "compose.yaml").write_bytes(content(hostile_plan("compose"), "compose.yaml"))
    socket = tmp_path_factory.getbasetemp() / "compose-engine"
    with engine(socket) as created:
        environ = {**os.environ, "DOCKER_HOST": f"unix://{socket}"}
        subprocess.run([*compose, "create"], cwd=tmp_path, env=environ, check=True, capture_output=True, timeout=60)
    (asked,) = created
    check_asked(asked)
    assert asked["Entrypoint"] == []
    # In no certain order, which is Compose's; the engine mounts outer directories first.
    assert {mount["Target"]: mount["Source"] for mount in asked["HostConfig"]["Mounts"]} == {
        "/jobctl/node": f"{tmp_path}/node-0",
        "/jobctl/launcher.py": f"{tmp_path}/launcher.py",
        "/jobctl/run": f"{tmp_path}/run",
        PATH: f"{tmp_path}/code",
        PATH + "/target": PATH,
    }


def check_asked(asked: Any) -> None:
    """The body of a request to create a container holds what the plan says."""
    env = dict(pair.split("=", 1) for pair in asked["Env"])
    assert {name: value for name, value in env.items() if name.startswith("HOSTILE_")} == dict(env_of(VALUES))
    check_launch(env["JOBCTL_LAUNCH"], VALUES)
    assert (asked["Image"], asked["WorkingDir"]) == ("pytorch/pytorch:2.13.0", PATH)
    assert asked["Cmd"] == [
        *("python3", "/jobctl/launcher.py", "--control", "/jobctl/run/control.json", "--dir", "/jobctl/node")
    ]
    assert asked["Labels"]["jobctl.owner"] == VALUES[6]


# Through a script with `docker run`.

STUB = """\
#!/bin/sh
[ "$1" = container ] && exit 1
printf '%s\\0' "$@" >"$DOCKER_ARGV"
"""


def docker_argv(wanted: Plan, shell: str, directory: Path) -> list[bytes]:
    """Run the plan's script with a `docker` that records its arguments."""
    directory.mkdir(exist_ok=True)
    (directory / "docker").write_text(STUB)
    (directory / "docker").chmod(0o755)
    (directory / "node-0.sh").write_bytes(content(wanted, "node-0.sh"))
    environ = {"PATH": f"{directory}:{os.environ['PATH']}", "DOCKER_ARGV": str(directory / "argv")}
    subprocess.run([shell, str(directory / "node-0.sh")], env=environ, check=True)
    return (directory / "argv").read_bytes().split(b"\0")[:-1]


def options(argv: list[bytes]) -> tuple[dict[bytes, list[bytes]], list[bytes]]:
    """Split arguments of `docker run` into options and what follows them, as docker does."""
    found: dict[bytes, list[bytes]] = defaultdict(list)
    words = iter(argv)
    assert next(words) == b"run"
    for word in words:
        if word == b"--":
            return found, list(words)
        found[word].append(b"" if word in (b"--init", b"--detach") else next(words))
    raise AssertionError("no image")


def mounts(found: list[bytes]) -> list[dict[str, str]]:
    rows = [next(csv.reader([value.decode()], strict=True)) for value in found]
    return [{name: value for name, _, value in (field.partition("=") for field in row)} for row in rows]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_docker_receives_through_ssh_script(shell: str, tmp_path: Path) -> None:
    values = (*VALUES, BYTES)
    work = tmp_path / "a work $dir, 'with' é"
    found, rest = options(docker_argv(hostile_plan("ssh", values), shell, work))
    env = {name: value for name, _, value in (word.partition(b"=") for word in found[b"--env"])}
    assert rest == [
        *(b"pytorch/pytorch:2.13.0", b"python3", b"/jobctl/launcher.py"),
        *(b"--control", b"/jobctl/run/control.json", b"--dir", b"/jobctl/node"),
    ]
    assert hostile_part(env) == as_bytes(env_of(values))
    check_launch(env[b"JOBCTL_LAUNCH"], values)
    assert found[b"--workdir"] == [os.fsencode(PATH)]
    assert os.fsencode(f"jobctl.owner={VALUES[6]}") in found[b"--label"]
    assert mounts(found[b"--mount"]) == [
        {"type": "bind", "source": f"{work}/node-0", "target": "/jobctl/node"},
        {"type": "bind", "source": f"{work}/launcher.py", "target": "/jobctl/launcher.py", "readonly": ""},
        {"type": "bind", "source": f"{work}/run", "target": "/jobctl/run", "readonly": ""},
        {"type": "bind", "source": f"{work}/code", "target": PATH},
        {"type": "bind", "source": PATH, "target": PATH + "/target", "readonly": ""},
    ]


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command")
def test_engine_receives_through_docker(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The real `docker run` takes each word as it is meant: what it asks the engine for is what the user wrote."""
    work = tmp_path / "a work $dir, 'with' é"
    work.mkdir()
    (work / "node-0.sh").write_bytes(content(hostile_plan("ssh"), "node-0.sh"))
    socket = tmp_path_factory.getbasetemp() / "engine"
    with engine(socket) as created:
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{socket}"}
        subprocess.run(["sh", str(work / "node-0.sh")], env=environ, check=True, capture_output=True)
    (asked,) = created
    check_asked(asked)
    assert asked["Entrypoint"] == [""]
    assert [(mount["Source"], mount["Target"]) for mount in asked["HostConfig"]["Mounts"]] == [
        (f"{work}/node-0", "/jobctl/node"),
        (f"{work}/launcher.py", "/jobctl/launcher.py"),
        (f"{work}/run", "/jobctl/run"),
        (f"{work}/code", PATH),
        (PATH, PATH + "/target"),
    ]


# Through a script that starts the launcher itself.


def at_home(wanted: Plan, **changes: Any) -> Plan:
    """The plan with this interpreter: `python3` on PATH may be a script that changes what it passes on."""
    changed = with_launch(wanted.nodes[0], **changes)
    return replace(wanted, nodes=(with_container(changed, python=sys.executable),))


def local_work(wanted: Plan, launcher: bytes, directory: Path) -> Path:
    """Lay out a work directory as `up` does; return the script."""
    for name in ("run", "node-0"):
        (directory / name).mkdir(parents=True)
    (directory / "launcher.py").write_bytes(launcher)
    (directory / "run" / "control.json").write_bytes(control_json(first_generation(wanted)))
    (directory / "node-0.sh").write_bytes(content(wanted, "node-0.sh"))
    return directory / "node-0.sh"


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("relative", [True, False])
def test_launcher_receives_through_local_script(shell: str, relative: bool, tmp_path: Path) -> None:
    """The launcher gets paths that do not depend on where it was started, and the script's own pid."""
    values = (*VALUES, BYTES)
    work = tmp_path / '-- a work\n$dir, "with" \'é '
    stub = DUMP.replace("sys.argv[1]", f"{str(tmp_path / 'dump.json')!r}").encode()
    script = local_work(at_home(hostile_plan("local", values)), stub + b"print(os.getpid())", work)
    started = subprocess.Popen(
        [shell, "./" + script.name if relative else str(script)],
        cwd=work if relative else "/",
        env={"PATH": os.environ["PATH"], "CDPATH": "/", "INHERITED": "$x"},
        stdout=subprocess.PIPE,
    )
    printed, _ = started.communicate()
    words, env = received(tmp_path / "dump.json")
    assert (started.returncode, int(printed)) == (0, started.pid)
    assert words == [
        *(os.fsencode(sys.executable), os.fsencode(work / "launcher.py")),
        *(b"--control", os.fsencode(work / "run" / "control.json"), b"--dir", os.fsencode(work / "node-0")),
    ]
    assert hostile_part(env) == as_bytes(env_of(values))
    assert env[b"INHERITED"] == b"$x"
    check_launch(env[b"JOBCTL_LAUNCH"], values)


def test_names_that_a_shell_takes_for_its_own(tmp_path: Path) -> None:
    names = ("PPID", "OPTIND", "IFS", "PS4", "UID", "BASHOPTS", "_", "a.b", "a-b", "-u", "é")
    odd = tuple((name, f"value of {name}") for name in names)
    wanted = at_home(plan(with_container(node(), env=odd), target="local"))
    stub = DUMP.replace("sys.argv[1]", f"{str(tmp_path / 'dump.json')!r}").encode()
    subprocess.run(["sh", str(local_work(wanted, stub, tmp_path / "work"))], check=True)
    _, env = received(tmp_path / "dump.json")
    assert {name: env.get(name) for name in as_bytes(odd)} == as_bytes(odd)


def test_users_process_receives_through_real_launcher(tmp_path: Path) -> None:
    """From the plan to the user's process, with nothing in between replaced."""
    values = (*VALUES, BYTES)
    (tmp_path / "dump.py").write_text(DUMP)
    command = (sys.executable, str(tmp_path / "dump.py"), str(tmp_path / "dump.json"), *values)
    alone = {"start": (), "nproc": 1, "devices": ("cpu:0",), "setup": (), "workdir": str(tmp_path)}
    wanted = at_home(hostile_plan("local", values), command=command, **alone)
    done = subprocess.run(
        ["sh", str(local_work(wanted, launcher(), tmp_path / "work"))],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    words, env = received(tmp_path / "dump.json")
    assert words[3:] == [os.fsencode(value) for value in values]
    assert hostile_part(env) == as_bytes(env_of(values))
