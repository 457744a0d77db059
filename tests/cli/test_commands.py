"""The commands that connect to nothing, and what all commands do with bad input: exit codes, stdout, stderr."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobctl.main import COMMANDS
from tests.cli.conftest import SPEC

COUNT = "error: the number of nodes has to be at least 1, and at most that of the spec's `nodes`"


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(closed: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    jobctl = f"{sys.executable} -m jobctl"
    script = f"({jobctl} schema && {jobctl} render --out out) {closed}"
    ran = subprocess.run(["sh", "-c", script], cwd=tmp_path, check=False)
    assert (ran.returncode, sorted(path.name for path in tmp_path.iterdir())) == (0, ["job.yaml", "out"])


@pytest.mark.parametrize(
    ("arguments", "code"), [("validate", 0), ("plan", 10), ("status nosuch", 2), ("up --bogus", 2)]
)
def test_a_full_stderr_changes_no_exit_code(arguments: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    (tmp_path / "hosts.txt").write_text("a\n")  # of which a command tells
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "jobctl", *arguments.split()], cwd=tmp_path, stderr=full, check=False
        )
    assert ran.returncode == code


@pytest.mark.parametrize("command", ["validate", "render", "plan"])
def test_a_hosts_file_that_is_not_used_is_told(jobctl: Any, command: str) -> None:
    Path("hosts.txt").write_text("a\n")
    told = "target local: this machine (hosts.txt is not used; --hosts hosts.txt uses it)\n"
    assert told in jobctl(command).err
    assert told not in jobctl(command, "--target", "local").err


def test_a_path_in_what_is_printed_is_quoted_for_a_shell(jobctl: Any) -> None:
    shutil.copytree(".", "my job")
    Path("my job", "hosts.txt").write_text("a\n")
    assert "--hosts 'my job/hosts.txt' uses it" in jobctl("validate", "my job/job.yaml").err


@pytest.mark.parametrize(
    ("argv", "code", "first"),
    [
        (("up", "gone.yaml"), 2, "error: there is no file `gone.yaml` [no-such-file]"),
        (("status", "nobody"), 2, "error: no job `nobody` is known here"),
        (("logs", "nobody"), 2, "error: no job `nobody` is known here"),
        (("wait", "nobody"), 2, "error: no job `nobody` is known here"),
        (
            ("down", "nobody"),
            2,
            "error: no job `nobody` is known here",
        ),
        (("supervise",), 2, "error: job `small` is not up"),
        (("stop",), 2, "error: job `small` is not up: there is nothing to stop"),
        (("restart",), 2, "error: job `small` is not up"),
        (("exec", "--node", "0", "--", "true"), 2, "error: node 0 is on no host: the job does not run"),
        (("exec", "--node", "0"), 2, "error: no command is given"),
        (
            ("run", "--target", "local", "--", "no-such-program"),
            127,
            "error: no-such-program: not found on the node's PATH",
        ),
        (("logs", "--node", "-1"), 2, "error: the job has no node `-1`"),
        (("pull",), 2, "error: job `small` has left nothing to fetch"),
        (("logs", "small", "--since", "yesterday"), 2, "error: `yesterday` is not a time"),
        (("logs", "small", "--since", "99999999999"), 2, "error: `99999999999` is not a time"),
        (("down", "--timeout", "soon"), 2, "error: `soon` is not a duration"),
        (("down", "--timeout", "99999999999"), 2, "error: `99999999999` is not a duration"),
        (
            ("up", "--target", "local", "--hosts", "hosts.txt"),
            2,
            "error: target `local` is this machine: it takes no hosts file",
        ),
        (("up", "--on", "one"), 2, "error: `--on` and `--exclude` choose from a hosts file"),
        (
            ("render", "--set=image=x", "--hosts", "hosts.txt", "--on", "two"),
            2,
            "error: hosts.txt: there is no host `two` in the hosts file",
        ),
        (
            ("render", "--set=image=x", "--hosts", "hosts.txt", "--exclude", "one"),
            2,
            "error: hosts.txt: `--on` and `--exclude` leave no host",
        ),
        (("scale", "\u00b2"), 2, "error: `scale` takes a job and a number of nodes"),
        (("scale", "0"), 2, COUNT),
        (("scale", "small", "--", "-1"), 2, COUNT),
        (("scale", "9" * 5000), 2, COUNT),
        (("ui", "--listen", "9" * 5000), 2, f"error: `{'9' * 5000}` is not an address to listen on"),
        (("up", "--set", "nodes"), 2, "error: `nodes` is not a valid override [bad-override]"),
        (("init", "x", "--framework", "tensorflow"), 2, "error: unknown framework `tensorflow`"),
    ],
)
def test_bad_usage(jobctl: Any, argv: tuple[str, ...], code: int, first: str) -> None:
    Path("hosts.txt").write_text("one\n")
    (Path("state") / "jobs" / "small").mkdir(parents=True)
    ran = jobctl(*argv)
    assert (ran.code, ran.out, ran.err.splitlines()[:1]) == (code, "", [first])


def test_no_rank_is_below_zero(jobctl: Any) -> None:
    ran = jobctl("logs", "--rank", "-1", "-o", "json")
    assert (ran.code, "'--rank'" in json.loads(ran.out)["error"]["message"]) == (2, True)


def test_a_job_that_is_not_known_may_run_on_hosts(jobctl: Any) -> None:
    ran = jobctl("down", "nobody")
    hint = "hint: it may run on hosts that jobctl cannot know here: `--hosts hosts.txt` names them"
    assert (ran.code, ran.err.splitlines()[1].startswith(hint)) == (2, True)


@pytest.mark.parametrize("command", ["metrics", "supervise"])
def test_a_command_without_hosts_does_not_ask_for_them(jobctl: Any, command: str) -> None:
    ran = jobctl(command, "nobody")
    hint = "hint: `jobctl list` shows the jobs that are known, `jobctl up` starts one"
    assert (ran.code, ran.err.splitlines()[1]) == (2, hint)


@pytest.mark.parametrize("command", ["up", "stop", "restart", "down", "plan"])
def test_each_host_that_does_not_answer_is_named(jobctl: Any, command: str) -> None:
    Path("hosts.txt").write_text("127.0.0.1:1\n127.0.0.2:1\n")
    Path("job.yaml").write_text(SPEC + "image: img\n")
    ran = jobctl(command, "--hosts", "hosts.txt", "-o", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["error"]["code"]) == (3, "unreachable")
    assert [(one["host"], one["code"]) for one in found["failed_hosts"]] == [
        ("127.0.0.1", "connection-refused"),
        ("127.0.0.2", "connection-refused"),
    ]


def test_up_where_no_cluster_is_known_changes_nothing(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "gone")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    ran = jobctl("up", "--target", "kubernetes", "--set", "image=x")
    assert (ran.code, "\nerror: no cluster is known: " in ran.err) == (2, True)
    assert not Path("state").exists()


def test_a_cluster_that_is_named_counts_for_a_job_that_is_up_on_hosts(
    jobctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "gone")
    Path("hosts.txt").write_text("one\n")
    about = Path("state") / "jobs" / "small" / "job.json"
    about.parent.mkdir(parents=True)
    about.write_text(json.dumps({"target": "ssh", "hosts": str(Path("hosts.txt").resolve())}))
    told = {
        (
            "up",
            "--context",
            "lab",
        ): "job `small` is up on target `ssh`, and would be brought up on target `kubernetes` too",
        ("plan", "-n", "ml"): "job `small` is up on target `ssh`, and would be brought up on target `kubernetes` too",
        ("check", "--context", "lab"): "no cluster is known: there is no gone",
        ("up", "--target", "ssh", "-n", "ml"): (
            "`--context` and `--namespace` choose a cluster, and target `ssh` has none"
        ),
    }
    for argv, message in told.items():
        ran = jobctl(*argv, "--set", "image=x")
        assert (ran.code, f"error: {message}" in ran.err.splitlines()) == (2, True), (argv, ran.err)


@pytest.mark.parametrize("options", [(), ("--hosts", "hosts.txt")])
def test_what_is_rendered_is_for_where_the_job_runs(jobctl: Any, options: tuple[str, ...]) -> None:
    """As `up` would start it: on its hosts, and on its target if a hosts file alone is named."""
    Path("hosts.txt").write_text("one nodes=2\n")
    about = Path("state") / "jobs" / "small" / "job.json"
    about.parent.mkdir(parents=True)
    about.write_text(json.dumps({"target": "ssh", "hosts": str(Path("hosts.txt").resolve())}))
    assert jobctl("render", "--set", "image=x", "--out", "out", *options).code == 0
    assert Path("out/one/node-0.sh").exists()
    codes = [one["code"] for one in json.loads(jobctl("validate", "-o", "json", *options).out)["diagnostics"]]
    assert codes == ["image-missing"]
    assert jobctl("render", "--target", "local", "--out", "here").code == 0
    assert Path("here/localhost/node-0.sh").exists()


def test_options_of_a_cluster_and_of_hosts_do_not_mix(jobctl: Any) -> None:
    Path("hosts.txt").write_text("one\n")
    ran = jobctl("up", "--namespace", "ml", "--hosts", "hosts.txt")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "error: `--context` and `--namespace` choose a cluster, and target `compose` has none",
    )
    ran = jobctl("up", "--target", "kubernetes", "--hosts", "hosts.txt")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "error: target `kubernetes` takes no hosts file: the cluster chooses",
    )


def test_commands_on_a_running_job_need_only_its_name(jobctl: Any) -> None:
    Path("job.yaml").write_text(SPEC + "env: {TOKEN: '${NOT_SET_ANYWHERE:?needed}'}\n")
    assert jobctl("validate").code == 2
    ran = jobctl("status", "-o", "json")
    assert (ran.code, json.loads(ran.out)["phase"]) == (0, "stopped")
    assert jobctl("down").code == 0


def test_the_name_may_come_from_a_variable_where_another_is_missing(
    jobctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = SPEC + "env: {TOKEN: '${NOT_SET_ANYWHERE:?needed}'}\n"
    Path("job.yaml").write_text(missing.replace("name: small", "name: ${WHO}-${WHAT:-run}"))
    Path(".env").write_text("WHO=me\n")
    assert json.loads(jobctl("status", "-o", "json").out)["job"] == "me-run"
    monkeypatch.setenv("WHO", "you")
    assert json.loads(jobctl("status", "-o", "json").out)["job"] == "you-run"
    monkeypatch.setenv("WHO", "")
    assert jobctl("status").code == 2


@pytest.mark.parametrize("command", [["plan"], ["init", "new"]])
def test_a_user_without_a_name_or_a_home_is_a_number(
    jobctl: Any, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pwd

    def nobody(_number: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert jobctl(*command).code in (0, 10)


@pytest.mark.parametrize("moment", ["import", "arguments"])
def test_ctrl_c_as_a_command_starts_leaves_no_traceback(moment: str, tmp_path: Path) -> None:
    """The signal comes while the command is imported, or while its options are read."""
    at = {"import": "jobctl.console", "arguments": "jobctl.commands.wait"}[moment]
    script = f"""
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {at!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["jobctl", "wait"]
import jobctl.__main__
jobctl.__main__.start()
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_a_second_command_waits_for_the_lock_and_gives_up(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobctl.jobspec.deploy.store import lock

    monkeypatch.setattr(lock, "WAIT", 0.0)
    path = Path("state") / "jobs" / "small" / "lock"
    with lock.hold(path, "up"):
        ran = jobctl("down")
        assert (ran.code, ran.err.startswith("error: job `small` is locked by `up` (pid ")) == (5, True)
        assert jobctl("down", "--break-lock").code == 0


def test_the_command_alone_prints_its_help(jobctl: Any) -> None:
    ran = jobctl()
    assert (ran.code in (0, 2), "Commands:" in ran.out + ran.err) == (True, True)


def test_version(jobctl: Any) -> None:
    assert jobctl("--version").out.startswith("jobctl 0.")


def test_help_of_every_command_has_an_example(jobctl: Any) -> None:
    whole = jobctl("--help").out
    assert "\n\n  Example: jobctl up job.yaml " in whole
    names = [line.split()[0] for line in whole.split("Commands:")[1].splitlines() if line.strip()]
    assert names == list(COMMANDS)
    for name in names:
        assert f"Example: jobctl {name}" in jobctl(name, "--help").out


def test_help_says_how_set_takes_text_as_it_is(jobctl: Any) -> None:
    helped = " ".join(jobctl("validate", "--help").out.split())
    assert """in YAML; text with quotes in it is taken as it is: --set "env.A='x # y'".""" in helped


def test_report_without_history_says_so(jobctl: Any, tmp_path: Path) -> None:
    for argv in (("report",), ("report", "small", "-o", "-")):
        ran = jobctl(*argv)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.splitlines() == [
            f"error: there is no history of job `small` in {tmp_path / 'state'}",
            "hint: `jobctl up` writes it where it is called; `jobctl list` shows the jobs that are up",
        ]
    assert list(Path().glob("*.html")) == []


def test_report_writes_a_page(jobctl: Any) -> None:
    from jobctl.jobspec.deploy.store import events

    history = Path("state") / "jobs" / "small" / "events.jsonl"
    events.record(history, 1000.0, "step", "generation 1: the job is new", step="generation", generation=1)
    events.record(history, 1090.0, "down", "job taken down")
    ran = jobctl("report")
    assert (ran.code, ran.out, ran.err) == (
        0,
        "",
        "wrote small-report.html: down, 1 min 30 s, no failure, 0 % effective training time\n",
    )
    page = Path("small-report.html").read_text()
    printed = jobctl("report", "small", "-o", "-")
    assert (printed.code, printed.err) == (0, "")
    # All but the time at which it was made.
    assert printed.out.split("Made by")[0] == page.split("Made by")[0]
    assert jobctl("report", "-o", "no/such/place.html").code == 2
    ran = jobctl("report", "-o", "json")  # what other commands take
    assert (ran.code, Path("json").exists()) == (2, False)
    assert "there is no format `json`" in ran.err
    assert jobctl("report", "-o", "./json").code == 0
    assert Path("json").exists()


def test_nothing_is_coloured_in_a_pipe(jobctl: Any) -> None:
    os.environ.pop("NO_COLOR", None)
    assert "\x1b" not in jobctl("validate", "gone.yaml").err


@pytest.fixture
def known(jobctl: Any, tmp_path: Path) -> Any:
    """A job `small` was started from the spec."""
    (tmp_path / "state" / "jobs" / "small").mkdir(parents=True)
    about = {"job": "small", "target": "local", "spec": str(tmp_path / "job.yaml")}
    (tmp_path / "state" / "jobs" / "small" / "job.json").write_text(json.dumps(about))
    return jobctl


WITH_NAME = ("status", "logs", "exec", "wait", "events", "stop", "restart", "pull", "supervise", "down", "report")


@pytest.mark.parametrize("command", [*WITH_NAME, "drill"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SPEC.replace("small", "other", 1), "no job `other` is known here; job `small` was started from job.yaml"),
        ("name: [", "job `small` was started from job.yaml"),
        (None, "job `small` was started from job.yaml"),
    ],
    ids=["renamed", "broken", "deleted"],
)
def test_a_spec_that_changed_says_which_job_is_known(known: Any, command: str, text: str | None, said: str) -> None:
    Path("job.yaml").unlink() if text is None else Path("job.yaml").write_text(text)
    ran = known(command, *(["--", "true"] if command == "exec" else []))
    hint = "hint: name the job: `jobctl status small`, `jobctl down small`"
    assert (ran.code, ran.out, ran.err.splitlines()[-2:]) == (2, "", [f"error: {said}", hint])


def test_the_job_of_another_folder_is_not_moved_to_another_target(known: Any, tmp_path: Path) -> None:
    folder, about = tmp_path / "first", tmp_path / "state" / "jobs" / "small" / "job.json"
    folder.mkdir()
    (folder / "job.yaml").write_text(SPEC)
    about.write_text(json.dumps({"job": "small", "target": "compose", "spec": str(folder / "job.yaml")}))
    ran = known("up", "--target", "local")
    said = f"error: job `small` was started from {folder}/job.yaml, and is up on target `compose`: it is left alone"
    assert (ran.code, said in ran.err.splitlines()) == (5, True), ran.err


def test_one_file_may_be_started_under_many_names(known: Any, tmp_path: Path) -> None:
    second = tmp_path / "state" / "jobs" / "third"
    second.mkdir()
    (second / "job.json").write_text((second.parent / "small" / "job.json").read_text())
    Path("job.yaml").write_text(SPEC.replace("small", "other", 1))
    ran = known("status")
    assert "jobs `small`, `third` were started from job.yaml" in ran.err
    Path("job.yaml").write_text(SPEC)
    assert known("status").code == 0


@pytest.mark.parametrize("command", [*WITH_NAME, "drill"])
@pytest.mark.parametrize("name", ["", "No_Name"])
def test_what_cannot_be_a_name_is_wrong_usage(jobctl: Any, command: str, name: str) -> None:
    ran = jobctl(command, name, *(["--", "true"] if command == "exec" else []))
    assert (ran.code, ran.out, ran.err.splitlines()[0]) == (2, "", f"error: `{name}` names no job")


@pytest.mark.parametrize("command", ["up", "plan", "validate", "render", "scale"])
def test_an_empty_name_of_a_job_is_wrong_usage_everywhere(jobctl: Any, command: str) -> None:
    ran = jobctl(command, "", *(["3"] if command == "scale" else []))
    assert (ran.code, ran.out, ran.err.splitlines()[0]) == (2, "", "error: `` names no job")
