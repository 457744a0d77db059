"""`validate`, `schema` and `init`: what is valid, what is told of the code, and what is written."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from jobctl.jobspec.deploy.store import code as store_code
from jobctl.jobspec.spec.frameworks import FRAMEWORKS
from tests.cli.conftest import SPEC


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


def test_what_only_hosts_can_tell_is_no_error(jobctl: Any) -> None:
    """How many devices they have is counted before a job is planned."""
    Path("job.yaml").write_text("name: small\nframework: torch\nimage: i:1\nmodule: train\ndevices: gpu\n")
    Path("hosts.txt").write_text("one\n")
    ran = jobctl("validate", "--hosts", "hosts.txt", "-o", "json")
    assert (ran.code, json.loads(ran.out)["diagnostics"]) == (0, [])


def code_folder(more: str = "") -> None:
    """Make the current folder the code of a job that has a secret in it."""
    Path("job.yaml").write_text(
        f"name: small\nframework: torch\nimage: i:1\nmodule: train\ncode: .\nsecrets: {{TOKEN: {{file: tok.txt}}}}\n{more}"
    )
    for name in ("hosts.txt", "tok.txt", ".env", "train.py"):
        Path(name).write_text("one\n" if name == "hosts.txt" else "A=hidden\n")


@pytest.mark.parametrize(
    ("place", "home"),
    [
        (("--target", "ssh", "--hosts", "hosts.txt"), "in the image"),
        (("--target", "slurm", "--set", "slurm.login=head"), "there already"),
        (("--target", "slurm", "--set", "slurm.container=apptainer"), "in the image"),
    ],
)
def test_a_script_that_nothing_sends_has_to_be_where_processes_run(
    jobctl: Any, place: tuple[str, ...], home: str
) -> None:
    """Where Slurm starts them without a container there is no image."""
    Path("train.py").touch()
    Path("hosts.txt").write_text("h[1-2]\n")
    Path("job.yaml").write_text(
        SPEC.replace("module: train", "script: train.py") + "image: x\nslurm: {directory: /s}\n"
    )
    warnings = [found["message"] for found in json.loads(jobctl("validate", "-o", "json", *place).out)["diagnostics"]]
    assert warnings == [f"nothing sends `train.py` to the hosts: it must be {home}"]


def known_on_hosts(hosts: Path) -> None:
    """Have a job `small` that `up` has started on the hosts of a file."""
    about = Path("state") / "jobs" / "small" / "job.json"
    about.parent.mkdir(parents=True)
    about.write_text(json.dumps({"target": "compose", "hosts": str(hosts), "on": "one"}))


def test_a_spec_is_validated_without_the_hosts_file_of_its_job(jobctl: Any, tmp_path: Path) -> None:
    """It is a matter of the spec alone; but of the target where the job runs, and nobody may take its hosts for checked."""
    gone = tmp_path / "gone.txt"
    known_on_hosts(gone)
    for named in ((), ("job.yaml",), ("--target", "ssh")):
        ran = jobctl("validate", *named, "--set", "image=x", "-o", "json")
        document = json.loads(ran.out)
        assert (ran.code, document["valid"]) == (0, True), ran.out
        assert [(d["severity"], d["code"], d["file"]) for d in document["diagnostics"]] == [
            ("warning", "hosts-file-gone", str(gone))
        ]
    ran = jobctl("validate")
    assert (ran.code, "[image-missing]" in ran.out, ran.err) == (2, True, "job.yaml: 1 error, 1 warning\n")
    ran = jobctl("render", "--set", "image=x")
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: job `small` was started with {gone}, which is gone")


def test_a_folder_that_nobody_may_look_into_is_told_of_once(
    jobctl: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stat = os.stat

    def forbidden(path: Any, *args: Any, **more: Any) -> os.stat_result:
        if "shut" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **more)

    monkeypatch.setattr(os, "stat", forbidden)
    ran = jobctl("validate", "shut/job.yaml")
    assert (ran.code, ran.out.splitlines()[0]) == (
        2,
        "error: cannot read `shut/job.yaml`: Permission denied [unreadable]",
    )
    assert "hint: `ls -l shut/job.yaml` shows who may" in ran.out
    assert ran.err == "shut/job.yaml: 1 error\n"


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


def test_a_volume_in_the_home_of_this_machine_is_where_it_says(
    jobctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    volumes = f"['~/data:{tmp_path}/data:ro', '~/none:{tmp_path}/none']"
    ran = jobctl("validate", "--set", f"volumes={volumes}", "-o", "json")
    messages = [found["message"] for found in json.loads(ran.out)["diagnostics"]]
    assert messages == ["there is no `~/none` on this machine"]


def test_code_is_where_the_spec_says_if_its_target_is_its_source(jobctl: Any, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for source, target, codes in (("code", f"{tmp_path}/code/", []), ("code", "/workspace", ["not-mounted"])):
        ran = jobctl("validate", "--set", f"code.source={source}", "--set", f"code.target={target}", "-o", "json")
        assert [found["code"] for found in json.loads(ran.out)["diagnostics"]] == codes


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


@pytest.mark.parametrize("home", ["a: b #c", "a$b", "${HOME}", "é'\"\\"])
def test_init_writes_what_validates_wherever_home_is(
    jobctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / home))
    jobctl("init", "new")
    Path("new", "train.py").write_text("")
    ran = jobctl("plan", "new/job.yaml", "--explain", "-o", "json")
    name = json.loads(ran.out)["job"]
    assert json.loads(ran.out)["checkpoint"]["dir"] == str(tmp_path / home / "checkpoints" / name)


@pytest.mark.parametrize("folder", [False, True])
def test_an_env_file_that_is_none_is_a_warning_and_nothing_starts_without_it(jobctl: Any, folder: bool) -> None:
    Path("job.yaml").write_text(f"{SPEC}env_file: v.env\n")
    if folder:
        Path("v.env").mkdir()
    why = "`v.env` is a folder, not a file" if folder else "there is no file `v.env`"
    ran = jobctl("validate")
    assert (ran.code, f"warning: {why} [file-not-found]" in ran.out) == (0, True)
    assert jobctl("plan").code == 10
    for command in (("up",), ("up", "--dry-run"), ("run", "--", "true")):
        ran = jobctl(*command)
        assert ran.code == 2
        assert f"error: `env_file` of job.yaml: {why}: nothing was started\n" in ran.err
    assert not Path("state/jobs/small/job.json").exists()


def test_init_names_folders_apart_of_whose_names_nothing_can_stay(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    names = []
    for folder in ("日本", "中国", "_", "elsewhere/日本"):
        jobctl("init", folder)
        names.append(json.loads(jobctl("plan", f"{folder}/job.yaml", "--explain", "-o", "json").out)["job"])
    assert (names[0], len(set(names[:3]))) == (names[3], 3)
    assert all(re.fullmatch("job-[0-9a-f]{8}-ann", name) for name in names)


def test_init_never_replaces_a_file(jobctl: Any) -> None:
    ran = jobctl("init", ".")
    assert (ran.code, Path("job.yaml").read_text()) == (2, SPEC)
    assert ran.err.splitlines() == ["error: job.yaml already exists", "hint: nothing was written"]
    assert not Path("hosts.txt").exists()


@pytest.mark.parametrize(
    ("argv", "place"),
    [(("init", "new"), "new/job.yaml"), (("import", "-o", "new/j.yaml", "--", "torchrun", "t.py"), "new/j.yaml")],
)
def test_a_file_that_has_no_room_leaves_none_behind(
    jobctl: Any, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], place: str
) -> None:
    """Or the next `init` would take an empty file for the user's, and refuse to replace it."""
    opened = Path.open

    def full(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        file = opened(path, mode, *args, **more)
        if "new" in path.parts and mode != "r":
            os.dup2(os.open("/dev/full", os.O_WRONLY), file.fileno())
        return file

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        ran = jobctl(*argv)
    assert (ran.code, ran.err) == (2, f"error: {place}: No space left on device\nhint: make room there\n")
    assert list(Path("new").iterdir()) == []
    assert jobctl(*argv).code == 0


def test_a_file_that_another_init_writes_meanwhile_is_not_replaced(
    jobctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.yaml").unlink()
    Path("hosts.txt").write_text("mine\n")
    monkeypatch.setattr(Path, "exists", lambda path: False)
    ran = jobctl("init")
    assert (ran.code, ran.err) == (2, "error: hosts.txt already exists\nhint: nothing was written\n")
    assert (Path("hosts.txt").read_text(), os.path.lexists("job.yaml")) == ("mine\n", False)


@pytest.mark.parametrize(("command", "looks"), [("validate", 1), ("render", 2)])  # the second finds the code's version
def test_the_folder_of_the_code_is_looked_through_once(
    jobctl: Any, monkeypatch: pytest.MonkeyPatch, command: str, looks: int
) -> None:
    code_folder()
    found = store_code.select
    counted = Mock(side_effect=found)
    monkeypatch.setattr(store_code, "select", counted)
    assert jobctl(command, "--hosts", "hosts.txt").code == 0
    assert counted.call_count == looks


def test_code_of_a_job_on_this_machine_is_counted_though_nothing_is_sent(jobctl: Any) -> None:
    code_folder()
    assert json.loads(jobctl("validate", "-o", "json").out)["code"]["files"] == 1


NOT_SHOWN = [b"PW='x'\nhush hush\n", b"PW=$(hush)\n", b"PW=hush${hush\n", b"PW=$NOPE-hush\n", b"PW=hush\xff\n"]


@pytest.mark.parametrize("name", [".env", "v.env"])
@pytest.mark.parametrize("content", NOT_SHOWN)
def test_no_value_of_a_file_of_variables_is_shown(jobctl: Any, name: str, content: bytes) -> None:
    """A person who reads the log of a test server would see it."""
    Path(name).write_bytes(content)
    Path("job.yaml").write_text(SPEC + ("env_file: v.env\n" if name == "v.env" else ""))
    ran = jobctl("validate")
    assert (f" --> {name}:" in ran.out, "hush" in ran.out + ran.err) == (True, False), ran.out


@pytest.mark.parametrize("folder", ["sub", "sub/../sub", "{here}/sub"])
def test_files_of_variables_are_named_from_where_the_spec_is(jobctl: Any, tmp_path: Path, folder: str) -> None:
    """An editor or a test server opens the file by that path."""
    folder = folder.format(here=tmp_path)
    Path("sub").mkdir()
    Path("sub/job.yaml").write_text(SPEC + "env_file: x.env\n")
    for name in (".env", "x.env"):
        Path("sub", name).write_text("no assignment\n")
    found = json.loads(jobctl("validate", f"{folder}/job.yaml", "-o", "json").out)["diagnostics"]
    assert {one["file"] for one in found} == {f"{folder}/.env", f"{folder}/x.env"}
