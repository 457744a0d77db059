"""What processes inherit, how they are started and ended, and what nodes share."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.process import guard
from tests.launcher.conftest import PATIENCE, kill_together, lose_power
from tests.tools.waiting import promptly


@pytest.mark.every_python
def test_a_launcher_that_chooses_the_interpreter_gets_a_script(node: Any) -> None:
    """As paddle.distributed.launch does: `python -u SCRIPT ARGS`, ranks in variables of its own."""
    framework = node.script(
        "import os, subprocess, sys\n"
        "os.environ.update(MY_RANK='5', MY_LOCAL='1')\n"
        "sys.exit(subprocess.call([sys.executable, '-u', *sys.argv[1:]]))\n"
    )
    process = node.start(
        start=[*framework, {"slot": "process_script"}],
        command=node.script("import os; print('rank', os.environ['JOBCTL_ROLE_RANK'])"),
        rank_env=["MY_RANK", "MY_LOCAL"],
        nproc=2,
    )
    node.order()
    assert process.wait(PATIENCE) == 0
    assert node.log("workerlog.1") == "rank 5\n"


def test_what_nodes_share_stays_while_others_may_go_on_with_it(node: Any) -> None:
    """Where a node comes back to its generation; it goes when the job does, although this node has failed before."""
    shared = node.root / "shared"
    shared.mkdir()
    process = node.start(
        command=node.script("import os, sys\nopen(os.environ['WHERE'] + '/state', 'w')\nsys.exit(3)"),
        env=[["WHERE", {"slot": "shared_scratch"}]],
        rejoin=0,
        rejoin_after=30.0,
    )
    node.order(checkpoint_dir=str(shared))
    node.until("failed")
    assert os.listdir(shared / ".jobctl-demo.demo-1") == ["state"]
    node.order(command="finish", checkpoint_dir=str(shared))
    assert process.wait(PATIENCE) == 3
    assert os.listdir(shared) == []


# As msrun does: each process in a session of its own, all killed as soon as one has ended, and a process too many.
KEEPER = """\
import os, signal, subprocess, sys, time
subprocess.run(["python3", *sys.argv[1:]], env={**os.environ, "MY_ROLE": "boss"}, check=True)
started = []
for rank in range(2):
    environ = {**os.environ, "MY_ROLE": "worker", "MY_RANK": str(rank), "MY_LOCAL": str(rank)}
    started.append(subprocess.Popen(["python3", *sys.argv[1:]], env=environ, preexec_fn=os.setsid))
while all(one.poll() is None for one in started):
    time.sleep(0.05)
for one in started:
    if one.poll() is None:
        os.killpg(one.pid, signal.SIGKILL)
sys.exit(max(one.wait() != 0 for one in started))
"""
SLOW_TO_END = """\
import os, signal, sys, time
def end(*_):
    time.sleep(0.8 * int(os.environ["MY_RANK"]))
    sys.exit("saved")
signal.signal(signal.SIGTERM, end)
print("role", os.environ["MY_ROLE"], flush=True)
while True:
    time.sleep(0.02)
"""


@pytest.mark.every_python
def test_processes_in_sessions_of_their_own_get_their_grace(node: Any) -> None:
    """Although their launcher would kill all of them when the first has ended; what it starts too many is left out."""
    process = node.start(
        start=[*node.script(KEEPER), {"slot": "process_script"}],
        command=node.script(SLOW_TO_END),
        rank_env=["MY_RANK", "MY_LOCAL"],
        nproc=2,
        apart=True,
        elsewhere=["MY_ROLE", "boss"],
        stop_grace=PATIENCE,
    )
    node.order()
    promptly(lambda: [node.log(f"workerlog.{n}") for n in (0, 1)] == ["role worker\n"] * 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 143
    assert [node.log(f"workerlog.{n}") for n in (0, 1)] == ["role worker\nsaved\n"] * 2
    assert [p["exit_code"] for p in node.report()["processes"]] == [1, 1]


LATE = """\
import os, signal, subprocess, sys, time
begun = int(sys.argv.pop(1))
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True) or os._exit(3))
for rank in range(begun):
    environ = {**os.environ, "MY_RANK": str(rank), "MY_LOCAL": str(rank)}
    subprocess.Popen(["python3", *sys.argv[1:]], env=environ, preexec_fn=os.setsid)
print("waits", flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize(("begun", "told"), [(0, True), (1, False)])
def test_what_has_not_begun_is_not_waited_for(node: Any, begun: int, told: bool) -> None:
    """The launcher waits for its peers, or has begun one of two processes: then that is told, and the launcher held still."""
    process = node.start(
        start=[*node.script(LATE), str(begun), {"slot": "process_script"}],
        command=node.script("import time\nprint('runs', flush=True)\nwhile True: time.sleep(1)"),
        rank_env=["MY_RANK", "MY_LOCAL"],
        nproc=2,
        apart=True,
        stop_grace=10 * PATIENCE,
    )
    node.order()
    promptly(lambda: "waits" in node.log("launch.log") and (not begun or node.log("workerlog.0") == "runs\n"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 143
    assert ("told" in node.log("launch.log")) is told


def test_inherited_variables_are_scrubbed_and_proxies_passed_by(node: Any) -> None:
    names = ["PADDLE_X", "PADDLE_Y", "POD_IP", "POD_IPS", "MINE", "NO_PROXY", "no_proxy"]
    process = node.start(
        command=node.script(f"import os; print({{name: os.environ.get(name) for name in {names!r}}})"),
        scrub=["PADDLE_*", "POD_IP"],
        env=[["PADDLE_X", "kept"]],
        environ={
            "PADDLE_X": "1",
            "PADDLE_Y": "1",
            "POD_IP": "1",
            "POD_IPS": "1",
            "https_proxy": "x",
            "NO_PROXY": "a,b",
        },
    )
    node.order()
    assert process.wait(PATIENCE) == 0
    found = {"PADDLE_X": "kept", "PADDLE_Y": None, "POD_IP": None, "POD_IPS": "1", "MINE": None}
    assert eval(node.log()) == {**found, "NO_PROXY": "a,b,127.0.0.1", "no_proxy": "a,b,127.0.0.1"}


def test_without_proxies_nothing_is_passed_by(node: Any) -> None:
    process = node.start(command=node.script("import os; print('no_proxy' in os.environ)"), environ={"NO_PROXY": "a"})
    node.order()
    assert process.wait(PATIENCE) == 0
    assert node.log() == "False\n"


def test_what_a_framework_writes_into_memory_is_gone_with_it(node: Any) -> None:
    framework = node.script(
        "import os, subprocess, sys\n"
        "folder = sys.argv[1]\n"
        "open(folder + '/envlog.0', 'w').write(str(dict(os.environ)))\n"
        "open(folder + '/job.pod.log', 'w').write('peers')\n"
        "sys.exit(subprocess.call([sys.executable, *sys.argv[2:]]))\n"
    )
    node.start(
        start=[*framework, {"slot": "scratch"}, {"slot": "process_script"}],
        command=node.script("import time\nwhile True: time.sleep(1)"),
        kept=["*.log"],
    )
    node.order()
    node.until("running")
    folder = Path(os.readlink(node.dir / "scratch"))
    promptly(lambda: (folder / "job.pod.log").exists())
    assert (folder.parent, folder.stat().st_mode & 0o777) == (Path("/dev/shm"), 0o700)
    promptly(lambda: node.log("job.pod.log") == "peers")
    kill_together(node.pids("--control"))  # nobody is left to tidy up
    node.gone()
    assert folder.exists()
    node.start()
    promptly(lambda: not folder.exists())
    node.order(2)
    node.until("running", 2)
    again = Path(os.readlink(node.dir / "scratch"))
    node.started[-1].send_signal(signal.SIGTERM)
    node.started[-1].wait(PATIENCE)
    assert not again.exists()
    left = [path for path in node.dir.rglob("*") if path.is_file() and "envlog" in path.name]
    assert left == []


@pytest.mark.every_python
def test_what_nodes_share_is_new_in_each_generation_and_gone_with_it(node: Any) -> None:
    shared = node.root / "shared"
    (shared / ".jobctl-demo.demo-0").mkdir(parents=True)
    (shared / ".jobctl-demo-x.demo-x-1").mkdir()  # of another job, whose name begins with this one's
    script = "import os, time\nprint(os.listdir(os.environ['WHERE']), flush=True)\nwhile not os.path.exists('end'): time.sleep(0.02)"
    process = node.start(command=node.script(script), env=[["WHERE", {"slot": "shared_scratch"}]])
    node.order(checkpoint_dir=str(shared))
    promptly(lambda: node.log() == "[]\n")
    assert sorted(os.listdir(shared)) == [".jobctl-demo-x.demo-x-1", ".jobctl-demo.demo-1"]
    (node.root / "end").touch()
    assert process.wait(PATIENCE) == 0
    assert os.listdir(shared) == [".jobctl-demo-x.demo-x-1"]


def test_what_nodes_share_goes_at_the_end_of_a_job_whose_launcher_was_killed(node: Any) -> None:
    """As its host lost its power; the engine has started the launcher again."""
    shared = node.root / "shared"
    shared.mkdir()
    node.start(
        command=node.script("import time; time.sleep(600)"),
        env=[["WHERE", {"slot": "shared_scratch"}]],
    )
    node.order(checkpoint_dir=str(shared))
    node.until("running")
    lose_power(node)
    process = node.start()
    node.until("failed")
    assert os.listdir(shared) == [".jobctl-demo.demo-1"]
    node.order(command="finish", checkpoint_dir=str(shared))
    process.wait(PATIENCE)
    assert os.listdir(shared) == []


def test_nodes_of_one_machine_share_a_folder_beside_their_own(node: Any) -> None:
    """A job of this machine needs no checkpoint directory for it."""
    process = node.start(
        command=node.script("import os\nprint(os.environ['WHERE'])"), env=[["WHERE", {"slot": "shared_scratch"}]]
    )
    node.order(checkpoint_dir=None)
    assert process.wait(PATIENCE) == 0
    assert node.log() == f"{node.dir.parent / '.jobctl-demo.demo-1'}\n"
    assert not list(node.dir.parent.glob(".jobctl-demo.*"))


def test_a_fork_beside_a_thread_warns_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pythons from 3.12 on do so, of what cannot happen here: people would read that in what their pods print."""
    fork = os.fork

    def fork_of_newer_pythons() -> int:
        warnings.warn(
            f"This process (pid={os.getpid()}) is multi-threaded, use of fork() may lead to deadlocks in the child.",
            DeprecationWarning,
            stacklevel=2,
        )
        return fork()

    monkeypatch.setattr(guard.os, "fork", fork_of_newer_pythons)
    with warnings.catch_warnings(record=True) as warned, (tmp_path / "log").open("wb") as log:
        warnings.simplefilter("always")
        _, status = os.waitpid(guard.fork_guard(lambda: 7, None, log.fileno()), 0)
    assert (os.waitstatus_to_exitcode(status), warned) == (7, [])
