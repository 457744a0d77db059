"""A generation that begins from standby, with a stand-in for the framework: what a rank sees is what it sees after a cold start."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.standby.guard import CHANGING
from tests.tools.processes import hurry
from tests.tools.waiting import eventually, promptly

from .conftest import PATIENCE, kill_together

SEEN = Path(__file__).with_name("seen.py")

# Says so each time that it is imported. It does not ask for the variable, as what an import has read must stay the same.
# While there is a file `hold` beside it, no import comes to its end. It imports another package.
FRAMEWORK = """\
import os, sys, time
while os.path.exists(os.path.join(os.path.dirname(__file__), "hold")):
    time.sleep(0.05)
with open("/proc/self/environ") as file:
    generation = file.read().partition("JOBCTL_GENERATION=")[2].partition("\\0")[0]
sys.stderr.write("framework imported in generation %s\\n" % generation)
import needed
"""
SETS = 'os.environ.update({"SET_FIRST": "1", "AND_SECOND": "2", "MADE_THIRD": "3", "AT_LAST": "4"})\n'

# Starts processes as torchrun does.
RUN = """\
import os, subprocess, sys
import framework

def main(argv):
    count, shim = int(argv[0]), argv[1:]
    started = []
    for local in range(count):
        own = {"LOCAL_RANK": str(local), "RANK": str(local), "WORLD_SIZE": str(count), "MASTER_PORT": argv[0]}
        started.append(subprocess.Popen(shim, env={**os.environ, **own}, start_new_session=True))
    return max(child.wait() for child in started)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""

# Starts processes as Paddle's launcher does: by an interpreter, script and log that it chooses, in sessions of their own.
LAUNCH = """\
import os, subprocess, sys
import framework

os.environ["MADE"] = "by the import"

def launch():
    count, script = int(sys.argv[1]), sys.argv[2:]
    started = []
    for local in range(count):
        own = {"PADDLE_TRAINER_ID": str(local), "PADDLE_RANK_IN_NODE": str(local), "PADDLE_MASTER": str(os.getpid())}
        log = open("launched.%d" % local, "a")
        argv = [sys.executable, "-u", *script]
        started.append(
            subprocess.Popen(argv, env={**os.environ, **own}, stdout=log, stderr=log, preexec_fn=os.setsid)
        )
    return max(child.wait() for child in started)

if __name__ == "__main__":
    sys.exit(launch())
"""

# Is like the first, and connects to where that of the first node listens.
MEET = """\
import socket
from framework import run

def main(argv):
    socket.create_connection(("127.0.0.1", int(argv[0]))).sendall(b"here\\n")
    return run.main(argv[1:])

if __name__ == "__main__":
    import sys
    sys.exit(run.main(sys.argv[2:]))
"""

TRAIN = """\
import os, time
import framework
print("training", framework.__name__, os.environ["JOBCTL_GENERATION"], flush=True)
with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
    file.write("1")
time.sleep(600)
"""


@pytest.fixture(params=["torchrun"])
def standby(node: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A node whose framework is the stand-in; its launcher starts the processes, or jobctl does (`itself`).

    `script`: a launcher as Paddle's is.
    """
    packages = tmp_path / "site-packages"
    (packages / "framework").mkdir(parents=True)
    (packages / "framework" / "__init__.py").write_text(FRAMEWORK)
    (packages / "framework" / "run.py").write_text(RUN)
    (packages / "framework" / "launch.py").write_text(LAUNCH)
    (packages / "needed.py").write_text("")
    (packages / "later.py").write_text("import os\nlevel = os.environ.get('LEVEL')\n")
    (tmp_path / "train.py").write_text(TRAIN)
    node.launch.update(
        start=[node.python, "-m", "framework.run", "2", {"slot": "process"}],
        command=[node.python, "-u", "train.py", "--rate", "0.1"],
        nproc=2,
        env=[["PYTHONPATH", str(packages)]],
        standby={"imports": [["framework"], ["later"]], "launcher": "framework.run", "off": "", "changing": OWN},
    )
    if request.param == "script":
        node.launch["start"] = [node.python, "-m", "framework.launch", "2", {"slot": "process_script"}]
        node.launch["standby"]["launcher"] = "framework.launch:launch"
        node.launch["rank_env"] = ["PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE"]
    if request.param == "itself":
        (packages / "framework" / "__init__.py").write_text(FRAMEWORK + SETS)
        node.launch.update(start=[], process_env=[["MASTER_PORT", {"slot": "master_port"}]])
    return node


OWN = ["PADDLE_MASTER", "PADDLE_TRAINER_ID"]  # variables of the stand-in that each generation changes
ALL = pytest.mark.parametrize("standby", ["torchrun", "script", "itself"], indirect=True)
BOTH = pytest.mark.parametrize("standby", ["torchrun", "itself"], indirect=True)
ITSELF = pytest.mark.parametrize("standby", ["itself"], indirect=True)


def begin(node: Any) -> None:
    """Have generation 1 train until there is a standby."""
    node.start()
    node.order(1)
    node.until("running", 1)
    eventually(lambda: hurry(node.living()) or node.report()["standby"]["state"] in ("ready", "off"))
    assert node.report()["standby"] == {"state": "ready", "reason": None}


def begin_again(node: Any, **order: Any) -> dict[str, Any]:
    """Kill a rank, and return the report of generation 2 once its ranks run, or have ended already."""
    os.kill(node.report()["processes"][-1]["pid"], signal.SIGKILL)
    node.until("failed", 1)
    node.order(2, **order)
    return begun_again(node)


def begun_again(node: Any) -> dict[str, Any]:
    """Return the report of generation 2 likewise."""

    def begun() -> dict[str, Any] | None:
        report: dict[str, Any] = node.report()
        states = {process["state"] for process in report["processes"]}
        there = report["generation"] == 2 and states and states <= {"running", "exited", "failed"}
        return report if there and report["start"] else None

    found: dict[str, Any] = promptly(begun)
    return found


@ALL
def test_a_rank_that_has_imported_before_does_not_import_again(standby: Any) -> None:
    begin(standby)
    assert standby.report()["start"] == {"standby": False, "cold_because": "it is the first start of this launcher"}
    report = begin_again(standby)
    assert report["start"] == {"standby": True, "cold_because": None}
    promptly(lambda: "training framework 2\n" in standby.log("workerlog.1", 2))  # words are written one by one
    assert standby.log("workerlog.1", 2) == "framework imported in generation 1\ntraining framework 2\n"


def test_the_frameworks_launcher_connects_once_that_of_the_first_node_listens(standby: Any) -> None:
    """torchrun that finds nobody there tries again half a second later, or a whole one. What only looks says nothing."""
    (standby.root / "site-packages" / "framework" / "meet.py").write_text(MEET)
    standby.launch["start"] = [
        standby.python,
        "-m",
        "framework.meet",
        {"slot": "master_port"},
        "2",
        {"slot": "process"},
    ]
    standby.launch["standby"]["launcher"] = "framework.meet"
    begin(standby)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        members = [
            {"node": node, "rank": 1 - node, "roles": ["trainer"], "host": "a", "address": "127.0.0.1", "nproc": 2}
            for node in (0, 1)
        ]
        rendezvous = {"address": "127.0.0.1", "port": server.getsockname()[1], "id": "demo-2"}
        assert begin_again(standby, members=members, rendezvous=rendezvous)["start"]["standby"]
        links = [server.accept()[0] for _ in range(2)]
        assert [link.recv(10) for link in links] == [b"", b"here\n"]
    for link in links:
        link.close()


@ITSELF
def test_a_process_begins_once_the_first_one_listens(standby: Any) -> None:
    """JAX that finds nobody there tries again a second later. The first process looks for nobody."""
    begin(standby)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        rendezvous = {"address": "127.0.0.1", "port": server.getsockname()[1], "id": "demo-2"}
        assert begin_again(standby, rendezvous=rendezvous)["start"]["standby"]
        with server.accept()[0] as link:
            assert link.recv(10) == b""
        promptly(lambda: all("training" in standby.log(f"workerlog.{local}", 2) for local in (0, 1)))
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def seen(node: Any, generation: int) -> dict[str, Any]:
    """Return what the probe has printed."""
    text: str = promptly(lambda: "}\n" in (log := node.log("workerlog.0", generation)) and log)
    found: dict[str, Any] = json.loads(text[text.index("{") : text.index("}\n") + 1])
    for variables in (found["variables"], found["variables of C"]):
        for name in CHANGING.union(OWN) & {*variables}:
            variables[name] = "another in each generation"
    return found


@BOTH
def test_what_waits_in_a_folder_that_was_replaced_is_not_used(standby: Any) -> None:
    """A user may have replaced the code as a whole: what waits would still be in the folder that was there before."""
    code = standby.root / "code"
    code.mkdir()
    (standby.root / "train.py").rename(code / "train.py")
    standby.launch["workdir"] = str(code)
    begin(standby)
    code.rename(standby.root / "before")
    code.mkdir()
    (code / "train.py").write_text("print('of now')\n" + TRAIN)
    why = {"standby": False, "cold_because": "the working directory has been replaced"}
    assert begin_again(standby)["start"] == why
    promptly(lambda: "of now" in standby.log("workerlog.1", 2))


@ALL
@pytest.mark.every_python
def test_a_rank_sees_from_standby_what_it_sees_after_a_cold_start(standby: Any) -> None:
    standby.launch["command"][2:] = [str(SEEN), "--rate", "0.1", ""]
    standby.launch["start"][3:4] = ["1"] if standby.launch["start"] else []
    standby.launch["nproc"] = 1
    standby.launch["env"] += [["PYTHONHASHSEED", "7"], ["PYTHONWARNINGS", "ignore::ImportWarning"], ["EMPTY", ""]]
    begin(standby)
    assert begin_again(standby)["start"] == {"standby": True, "cold_because": None}
    cold, warm = seen(standby, 1), seen(standby, 2)
    finders = warm.pop("finders before")
    assert finders == ["Preloaded", *cold.pop("finders before")]
    assert {name: (cold[name], warm[name]) for name in cold if cold[name] != warm[name]} == {}
    promptly(lambda: "at exit\n" in standby.log("workerlog.0", 2))
    words = standby.log("workerlog.0", 2).partition("Traceback")[2]
    assert words.startswith(f' (most recent call last):\n  File "{SEEN}", line ')
    assert words.count("  File ") == 1
    assert words.endswith("LookupError: the last words\nat exit\n")


@ITSELF
def test_a_process_that_is_started_again_alone_has_imported_before(standby: Any) -> None:
    standby.launch["rejoin"] = 3
    begin(standby)
    others = [process["pid"] for process in standby.report()["processes"]][:1]
    os.kill(standby.report()["processes"][1]["pid"], signal.SIGKILL)
    promptly(lambda: standby.log("workerlog.1", 1).count("training") == 2)
    assert standby.log("workerlog.1", 1).count("framework imported") == 1 + 1  # by the first, and by what waited
    assert [process["pid"] for process in standby.report()["processes"]][:1] == others
    promptly(lambda: standby.report()["process_restarts"] == 1)  # told a moment after it has begun
    assert standby.report()["start"] == {"standby": False, "cold_because": "it is the first start of this launcher"}


def waiting(node: Any) -> dict[str, int]:
    """Return the processes that wait: the framework's launcher, guards and ranks, by what they are."""
    found: dict[str, int] = {}
    for pid in node.living():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes()
            line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"JOBCTL_STANDBY=" in variables:
                kind = "launcher" if b"parked-launcher" in line else "guard" if b"parked" in line else "rank"
                found[kind] = pid
                if kind == "rank" and not node.launch["start"]:  # its guard was forked: its command is the launcher's
                    found["guard"] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    return found


@pytest.mark.parametrize(
    ("standby", "victim"),
    [("torchrun", "launcher"), ("torchrun", "guard"), ("torchrun", "rank"), ("itself", "guard"), ("itself", "rank")],
    indirect=["standby"],
)
def test_whatever_of_it_is_killed_the_job_trains_on_and_starts_cold(standby: Any, victim: str) -> None:
    begin(standby)
    ranks = [process["pid"] for process in standby.report()["processes"]]
    before, hold = waiting(standby), standby.root / "site-packages" / "framework" / "hold"
    hold.touch()  # however slow this test is, what is begun in its place is not ready
    os.kill(before[victim], signal.SIGKILL)
    promptly(lambda: standby.report()["standby"]["state"] == "warming")
    promptly(lambda: not {*before.values()} & {*waiting(standby).values()})
    assert [process["pid"] for process in standby.report()["processes"]] == ranks
    os.kill(ranks[-1], signal.SIGKILL)
    standby.until("failed", 1)
    standby.order(2)
    standby.until("running", 2)
    hold.unlink()
    start = promptly(lambda: standby.report()["start"])
    assert start == {"standby": False, "cold_because": "standby was not ready"}
    promptly(lambda: "training" in standby.log("workerlog.1", 2))


def test_what_waits_was_compiled_by_the_launcher(standby: Any) -> None:
    """Images tell their interpreters to write no bytecode, and one that compiles the launcher first is late."""
    standby.launch["env"].append(["PYTHONDONTWRITEBYTECODE", "1"])
    begin(standby)
    line = Path(f"/proc/{waiting(standby)['launcher']}/cmdline").read_bytes().split(b"\0")
    assert line[1:3] == [os.fsencode(standby.dir / "launcher.pyc"), b"parked-launcher"]
    (kept,) = (standby.dir / "standby" / "__pycache__").iterdir()
    assert kept.name.startswith("jobctl_standby.")
    assert begin_again(standby)["start"] == {"standby": True, "cold_because": None}


@BOTH
def test_nothing_waits_when_the_launcher_and_its_guard_are_killed(standby: Any) -> None:
    begin(standby)
    launcher = standby.started[-1].pid
    kill_together([launcher, *children(launcher)])
    standby.gone()


@BOTH
@pytest.mark.parametrize("command", ["stop", "finish"])
def test_nothing_waits_for_a_job_that_is_over(standby: Any, command: str) -> None:
    begin(standby)
    standby.order(1, command)
    standby.until("stopped")
    promptly(lambda: waiting(standby) == {})


def test_what_waits_is_kept_where_a_change_of_the_job_follows(standby: Any) -> None:
    """`scale` and `up` stop the processes first, where they replace or remove launchers."""
    terms = {"restarts": 9, "rules": [], "ports": [20000, 29999], "failures": []}
    begin(standby)
    standby.order(1, "stop", pause=1, autonomy={**terms, "base": {"number": 1, "id": "demo-1"}})
    assert standby.until("stopped")["standby"] == {"state": "ready", "reason": None}
    standby.order(2)
    assert begun_again(standby)["start"] == {"standby": True, "cold_because": None}


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
