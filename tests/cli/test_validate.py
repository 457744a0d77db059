"""`validate`, `schema` and `init`: what is valid, what is told of the code, and what is written."""

from __future__ import annotations

import base64
import io
import json
import os
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


def test_init_never_replaces_a_file(jobctl: Any) -> None:
    ran = jobctl("init", ".")
    assert (ran.code, Path("job.yaml").read_text()) == (2, SPEC)
    assert ran.err.splitlines() == ["error: job.yaml already exists", "hint: nothing was written"]
    assert not Path("hosts.txt").exists()


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
