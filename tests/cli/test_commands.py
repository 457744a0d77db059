"""The commands that connect to nothing, and what all commands do with bad input: exit codes, stdout, stderr."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer import Exit

from jobctl.jobspec.spec.frameworks import FRAMEWORKS
from jobctl.main import COMMANDS
from tests.cli.conftest import SPEC

# Renewed with --update-golden.
EXPLAINED = Path(__file__).parents[1] / "golden" / "cli" / "env-of-every-server.txt"


def test_validate_says_valid_on_stderr_and_nothing_on_stdout(jobctl: Any) -> None:
    ran = jobctl("validate")
    assert (ran.code, ran.out, ran.err) == (0, "", "job.yaml: valid\n")


def test_validate_as_json(jobctl: Any) -> None:
    Path("job.yaml").write_text(SPEC + "recovery:\n  max_restart: 3\n")
    ran = jobctl("validate", "-o", "json")
    assert (ran.code, ran.err) == (2, "")
    assert json.loads(ran.out) == {
        "valid": False,
        "diagnostics": [
            {
                "severity": "error",
                "code": "unknown-key",
                "message": "unknown key `max_restart`",
                "file": "job.yaml",
                "line": 7,
                "column": 3,
                "end_line": 7,
                "end_column": 14,
                "hint": "did you mean `max_restarts`?",
            }
        ],
    }


def test_a_valid_spec_with_warnings_exits_with_0(jobctl: Any) -> None:
    Path("job.yaml").write_text("name: small\nframework: torch\nscript: gone.py\n")
    ran = jobctl("validate", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["valid"], [d["code"] for d in document["diagnostics"]]) == (
        0,
        True,
        ["file-not-found"],
    )


def test_validate_with_hosts_asks_for_what_containers_need(jobctl: Any) -> None:
    Path("hosts.txt").write_text("one\n")
    ran = jobctl("validate", "--hosts", "hosts.txt", "-o", "json")
    codes = [d["code"] for d in json.loads(ran.out)["diagnostics"]]
    assert (ran.code, codes) == (2, ["image-missing", "too-few-hosts"])


def code_folder(more: str = "") -> None:
    """Make the current folder the code of a job that has a secret in it."""
    Path("job.yaml").write_text(
        f"name: small\nframework: torch\nimage: i:1\nmodule: train\ncode: .\nsecrets: {{TOKEN: {{file: tok.txt}}}}\n{more}"
    )
    for name in ("hosts.txt", "tok.txt", ".env", "train.py"):
        Path(name).write_text("one\n" if name == "hosts.txt" else "A=hidden\n")


def test_validate_says_what_of_the_code_is_not_sent(jobctl: Any) -> None:
    code_folder()
    ran = jobctl("validate", "--hosts", "hosts.txt")
    assert (ran.code, ran.out, ran.err.splitlines()) == (
        0,
        "",
        [
            "not sent: .env (an env file), tok.txt (secret `TOKEN`); `code.include` sends what it names",
            "job.yaml and hosts.txt: valid",
        ],
    )
    code = json.loads(jobctl("validate", "--hosts", "hosts.txt", "-o", "json").out)["code"]
    assert (code["files"], [one["path"] for one in code["left_out"]]) == (
        1,
        [".env", "hosts.txt", "job.yaml", "tok.txt"],
    )


def test_manifests_hold_no_secret_of_the_codes_folder(jobctl: Any) -> None:
    code_folder()
    text = jobctl("render", "--target", "kubernetes").out
    packed = next(one["binaryData"] for one in yaml.safe_load_all(text) if "binaryData" in (one or {}))
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(*packed.values()))) as archive:
        assert archive.getnames() == ["train.py"]


def test_code_that_is_large_is_a_warning_that_names_the_largest_files(jobctl: Any) -> None:
    code_folder()
    for name, size in (("a.bin", 300), ("b.bin", 2), ("c.bin", 1), ("d.bin", 3)):
        with Path(name).open("wb") as file:
            file.truncate(size * 1_000_000)
    ran = jobctl("validate", "--hosts", "hosts.txt", "-o", "json")
    (found,) = json.loads(ran.out)["diagnostics"]
    largest = "the largest files: a.bin (300.0 MB), d.bin (3.0 MB), b.bin (2.0 MB)"
    message = f"the code is 306.0 MB, and every host gets all of it; {largest}"
    assert (ran.code, found["code"], found["line"], found["message"]) == (0, "large-code", 5, message)
    assert json.loads(jobctl("validate", "-o", "json").out)["diagnostics"] == []  # nothing is sent


def test_a_directory_is_no_spec(jobctl: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    ran = jobctl("validate", "folder", "-o", "json")
    assert (ran.code, [found["code"] for found in json.loads(ran.out)["diagnostics"]]) == (2, ["not-a-file"])


def test_json_is_json_in_every_encoding(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("\u00e9\U0001f600: 1\n", encoding="utf-8")
    command = [sys.executable, "-m", "jobctl", "validate", "-o", "json"]
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
    messages = [found["message"] for found in json.loads(ran.stdout)["diagnostics"]]
    assert (ran.returncode, "unknown key `\u00e9\U0001f600`" in messages) == (2, True)


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(closed: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    jobctl = f"{sys.executable} -m jobctl"
    script = f"({jobctl} schema && {jobctl} render --out out) {closed}"
    ran = subprocess.run(["sh", "-c", script], cwd=tmp_path, check=False)
    assert (ran.returncode, sorted(path.name for path in tmp_path.iterdir())) == (0, ["job.yaml", "out"])


def test_schema_is_json(jobctl: Any) -> None:
    schema = json.loads(jobctl("schema").out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["recovery"]


def test_init_writes_what_validates(jobctl: Any) -> None:
    for framework in FRAMEWORKS:
        ran = jobctl("init", framework, "--framework", framework)
        assert (ran.code, ran.out) == (0, "")
        Path(framework, "train.py").write_text("")
        assert jobctl("validate", f"{framework}/job.yaml").code == 0
        hosts = f"{framework}/hosts.txt"
        assert jobctl("validate", f"{framework}/job.yaml", "--hosts", hosts).code == 0


def test_init_never_replaces_a_file(jobctl: Any) -> None:
    ran = jobctl("init", ".")
    assert (ran.code, Path("job.yaml").read_text()) == (2, SPEC)
    assert ran.err.splitlines() == ["error: job.yaml already exists", "hint: nothing was written"]
    assert not Path("hosts.txt").exists()


def _files(folder: str) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()
    }


def test_render_is_the_same_each_time(jobctl: Any) -> None:
    Path("hosts.txt").write_text("gpu[1-2]\n")
    args = ("render", "--hosts", "hosts.txt", "--set", "image=registry/train:1")
    assert jobctl(*args, "--out", "one").code == 0
    assert jobctl(*args, "--out", "two").code == 0
    files = _files("one")
    assert files == _files("two")
    assert {"launcher.py", "control.json", "gpu1/compose.yaml", "gpu2/compose.yaml"} <= set(files)


def test_another_host_is_no_other_version_of_the_code(jobctl: Any) -> None:
    Path("job.yaml").write_text(f"{SPEC}code: .\nimage: demo\n")
    versions = []
    for name, text in (("hosts.txt", "a nodes=2\n"), ("hosts.txt", "a nodes=2\nb spare\n"), ("other.txt", "")):
        Path(name).write_text(text)
        jobctl("render", "--hosts", "hosts.txt", "--out", "made")
        compose = Path("made/a/compose.yaml").read_text()
        versions.append(re.findall("code/([0-9a-f]{16})", compose)[0])
    assert (versions[0] == versions[1], versions[1] == versions[2]) == (True, False)


def test_what_jobctl_writes_beside_the_code_is_no_code(jobctl: Any, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"{SPEC}code: .\nimage: demo\n")
    Path("hosts.txt").write_text("a\nb\n")
    jobctl("render", "--hosts", "hosts.txt", "--out", "one")
    Path("small-report.html").write_text("a page")
    Path("small-pull").mkdir()
    Path("small-pull", "workerlog.0").write_text("a log")
    jobctl("render", "--hosts", "hosts.txt", "--out", "two")
    assert _files("one") == _files("two") != {}


def test_only_hosts_files_are_no_code_and_what_is_left_out_is_told(jobctl: Any, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"{SPEC}code: .\nimage: demo\n")
    Path("hosts.txt").write_text("a\nb\n")
    Path("hosts_train.txt").write_text("alpha\nbeta\n")  # data
    Path("hosts-lab.txt").write_text("gpu[1-4] slots=8\n")
    Path(".env").write_text("TOKEN=x")
    ran = jobctl("validate", "--hosts", "hosts.txt", "-o", "json")
    left_out = {one["path"]: one["reason"] for one in json.loads(ran.out)["code"]["left_out"]}
    assert left_out == {
        ".env": "an env file",
        "hosts-lab.txt": "it reads as a hosts file",
        "hosts.txt": "a hosts file",
        "job.yaml": "the spec",
    }
    told = "not sent: .env (an env file), hosts-lab.txt (it reads as a hosts file); "
    assert told in jobctl("validate", "--hosts", "hosts.txt").err
    assert told in jobctl("render", "--hosts", "hosts.txt", "--out", "one").err  # as `up` does


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


def test_no_artefact_holds_another_nodes_address(jobctl: Any) -> None:
    Path("hosts.txt").write_text("gpu1 addr=10.9.8.1\ngpu2 addr=10.9.8.2\n")
    jobctl("render", "--hosts", "hosts.txt", "--set", "image=x", "--out", "out")
    for mine, other in (("1", "2"), ("2", "1")):
        text = Path("out", f"gpu{mine}", "compose.yaml").read_text()
        assert f"10.9.8.{other}" not in text
        assert f"gpu{other}" not in text


def test_plan_explains_the_whole_job(jobctl: Any) -> None:
    ran = jobctl("plan", "--explain")
    assert (ran.code, ran.out.splitlines()[-1]) == (10, "supervise small: no supervisor runs")
    assert "0     trainer  localhost  127.0.0.2  0      cpu:0" in ran.out
    assert "1     trainer  localhost  127.0.0.3  1      cpu:0" in ran.out
    document = json.loads(jobctl("plan", "--explain", "-o", "json").out)
    assert [node["host"]["address"] for node in document["nodes"]] == ["127.0.0.2", "127.0.0.3"]


def test_plan_explains_what_each_process_is_given(jobctl: Any, request: pytest.FixtureRequest) -> None:
    """Each variable once, and of the spec's own only those that the launcher lets through."""
    env = "env: {HTTP_PROXY: 'http://p:1', PADDLE_WITH_GLOO: '2', FLAGS_selected_gpus: '7', MASTER_ADDR: x, NCCL_DEBUG: INFO}"
    ps = "mode: ps\nps: {servers: 1, trainers: 1}\ndevices: {kind: gpu, ids: '3'}\n"
    Path("job.yaml").write_text(f"name: wide\nframework: paddle\nscript: train.py\n{ps}{env}\n")
    lines = jobctl("plan", "--explain").out.splitlines()
    server = lines.index("env of every server:")
    found = "\n".join(lines[server + 1 : lines.index("each process runs:")]) + "\n"
    if request.config.getoption("--update-golden"):
        EXPLAINED.write_text(found)
    assert found == EXPLAINED.read_text()


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
        (("exec", "--node", "0", "--", "true"), 2, "error: job `small` has no node 0"),
        (("exec", "--node", "0"), 2, "error: no command is given"),
        (
            ("run", "--target", "local", "--", "no-such-program"),
            127,
            "error: no-such-program: not found on the node's PATH",
        ),
        (("pull",), 2, "error: job `small` has left nothing to fetch"),
        (("logs", "small", "--since", "yesterday"), 2, "error: `yesterday` is not a time"),
        (("down", "--timeout", "soon"), 2, "error: `soon` is not a duration"),
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
        (("up", "--set", "nodes"), 2, "error: `nodes` is not a valid override [bad-override]"),
        (("init", "x", "--framework", "tensorflow"), 2, "error: unknown framework `tensorflow`"),
    ],
)
def test_bad_usage(jobctl: Any, argv: tuple[str, ...], code: int, first: str) -> None:
    Path("hosts.txt").write_text("one\n")
    (Path("state") / "jobs" / "small").mkdir(parents=True)
    ran = jobctl(*argv)
    assert (ran.code, ran.out, ran.err.splitlines()[:1]) == (code, "", [first])


def test_a_job_that_is_not_known_may_run_on_hosts(jobctl: Any) -> None:
    ran = jobctl("down", "nobody")
    hint = "hint: it may run on hosts that jobctl cannot know here: `--hosts hosts.txt` names them"
    assert (ran.code, ran.err.splitlines()[1].startswith(hint)) == (2, True)


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


def test_manifests_are_printed_as_one_stream(jobctl: Any) -> None:
    """As `kubectl apply -f -` takes it: nothing is missing that is written into files."""
    printed = jobctl("render", "--target", "kubernetes", "--set", "image=x", "--set", "code=.")
    assert (
        printed.code,
        jobctl("render", "--target", "kubernetes", "--set", "image=x", "--set", "code=.", "--out", "out").code,
    ) == (0, 0)
    files = sorted(Path("out/manifests").iterdir())
    assert [one["kind"] for one in yaml.safe_load_all(printed.out)] == [
        "ConfigMap",
        "ConfigMap",
        "ConfigMap",
        "Service",
        "Job",
    ]
    assert list(yaml.safe_load_all(printed.out)) == [yaml.safe_load(path.read_text()) for path in files]


def test_commands_on_a_running_job_need_only_its_name(jobctl: Any) -> None:
    Path("job.yaml").write_text(SPEC + "env: {TOKEN: '${NOT_SET_ANYWHERE:?needed}'}\n")
    assert jobctl("validate").code == 2
    ran = jobctl("status", "-o", "json")
    assert (ran.code, json.loads(ran.out)["phase"]) == (0, "stopped")
    assert jobctl("down").code == 0


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
    names = [line.split()[0] for line in jobctl("--help").out.split("Commands:")[1].splitlines() if line.strip()]
    assert names == list(COMMANDS)
    for name in names:
        assert f"Example: jobctl {name}" in jobctl(name, "--help").out


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


def test_nothing_is_coloured_in_a_pipe(jobctl: Any) -> None:
    os.environ.pop("NO_COLOR", None)
    assert "\x1b" not in jobctl("validate", "gone.yaml").err


@pytest.mark.parametrize(
    ("argv", "coloured"),
    [
        (("--color", "always", "status", "nobody"), True),
        (("status", "nobody", "--color=always"), True),
        (("status", "--color", "always", "nobody"), True),
        (("status", "nobody"), False),  # the choice of one command is not that of the next
        (("status", "nobody", "--color", "never"), False),
    ],
)
def test_color_counts_before_and_after_the_command(jobctl: Any, argv: tuple[str, ...], coloured: bool) -> None:
    ran = jobctl(*argv)
    assert (ran.code, ran.err.startswith("\x1b[31merror\x1b[0m: ")) == (2, coloured)


@pytest.mark.parametrize("argv", [("list", "--color", "blue"), ("list", "--color"), ("--color=", "list")])
def test_a_color_that_is_none_is_wrong_usage(jobctl: Any, argv: tuple[str, ...]) -> None:
    ran = jobctl(*argv)
    assert (ran.code, "--color" in ran.err) == (2, True)


def test_the_color_of_a_command_in_a_node_is_left_to_it(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows `--` is another program's."""
    from jobctl.jobspec.operations.inspect import oneoff

    given: list[Any] = []
    monkeypatch.setattr(oneoff, "run_like_node", lambda compiled, node, argv, *rest: given.append(argv) or 0)
    assert jobctl("run", "job.yaml", "--", "ls", "--color", "always").code == 0
    assert given == [["ls", "--color", "always"]]


# Errors where JSON was asked for.

SAYS = ("code", "exit_code", "hint", "message")


@pytest.mark.parametrize(
    ("argv", "exit_code", "code", "message"),
    [
        (("status", "nobody", "-o", "json"), 2, "usage", "nobody"),
        (("status", "--no-such-option", "-o", "json"), 2, "usage", "No such option: --no-such-option"),
        (("status", "-ojson", "--hosts"), 2, "usage", "'--hosts' requires an argument"),
        (("wait", "--output=json", "one", "two"), 2, "usage", "unexpected extra argument"),
        (("logs", "-fo", "json", "--tail", "many"), 2, "usage", "Invalid value for '--tail' / '-n'"),
        (("logs", "-n", "many", "-o", "json"), 2, "usage", "Invalid value for '--tail' / '-n'"),
        (("plan", "gone.yaml", "-o", "json"), 2, "invalid-spec", "the spec is not valid"),
        (("check", "--hosts", "gone.txt", "-o", "json"), 2, "invalid-spec", "the spec is not valid"),
        (("list", "--hosts", "gone.txt", "-o", "json"), 2, "invalid-hosts", "the hosts file is not valid"),
    ],
)
def test_an_error_is_one_json_document(
    jobctl: Any, argv: tuple[str, ...], exit_code: int, code: str, message: str
) -> None:
    ran = jobctl(*argv)
    (line,) = ran.out.splitlines()
    error = json.loads(line)["error"]
    assert (ran.code, sorted(error)) == (exit_code, list(SAYS))
    assert (error["exit_code"], error["code"], message in error["message"]) == (exit_code, code, True), error


def test_an_error_in_json_has_what_diagnostics_say(jobctl: Any) -> None:
    Path("job.yaml").write_text(SPEC + "nodse: 2\n")
    ran = jobctl("plan", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.err, document["valid"], document["error"]["code"]) == ("", False, "invalid-spec")
    assert [diagnostic["code"] for diagnostic in document["diagnostics"]] == ["unknown-key"]


def test_a_bug_is_told_as_json_too(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("jobctl.jobspec.operations.resolve.running.name_of", fails)
    ran = jobctl("status", "x", "-o", "json")
    assert (ran.code, json.loads(ran.out)["error"]["code"]) == (70, "bug")


def test_each_host_that_failed_stands_beside_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
    from jobctl.jobspec.deploy.model.errors import HostError
    from jobctl.options import Format
    from jobctl.views.failure import command

    @command
    def fails(output: Format) -> None:
        raise AllUnreachable({"h1": HostError("h1", "no-route", "no way", "a hint")}, None)  # type: ignore[arg-type]

    with pytest.raises(Exit) as ended:
        fails(output=Format.json)
    assert ended.value.exit_code == 3
    assert json.loads(capsys.readouterr().out) == {
        "error": {"code": "unreachable", "message": "no host answers", "hint": None, "exit_code": 3},
        "failed_hosts": [{"host": "h1", "code": "no-route", "message": "h1: no way", "hint": "a hint"}],
    }


def test_no_second_document_follows_one_that_tells_of_the_failure(capsys: pytest.CaptureFixture[str]) -> None:
    from jobctl import console
    from jobctl.options import Format
    from jobctl.views.failure import Failed, command

    @command
    def fails(output: Format) -> None:
        console.out_json({"down": False})
        raise Failed("", 4)

    with pytest.raises(Exit):
        fails(output=Format.json)
    assert json.loads(capsys.readouterr().out) == {"down": False}


def test_render_takes_the_options_of_up(jobctl: Any, tmp_path: Path) -> None:
    (tmp_path / "ssh_config").write_text("Host *\n")
    assert jobctl("render", "--ssh-config", "ssh_config").code == 0
    assert jobctl("render", "--ssh-config", "gone").code == 2


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
