"""`render`: the same input gives the same bytes, and what is no part of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.cli.conftest import SPEC


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
    Path("hosts-lab.txt").write_text("gpu[1-4] slots=8\nml@localhost\n")
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


def test_no_artefact_holds_another_nodes_address(jobctl: Any) -> None:
    Path("hosts.txt").write_text("gpu1 addr=10.9.8.1\ngpu2 addr=10.9.8.2\n")
    jobctl("render", "--hosts", "hosts.txt", "--set", "image=x", "--out", "out")
    for mine, other in (("1", "2"), ("2", "1")):
        text = Path("out", f"gpu{mine}", "compose.yaml").read_text()
        assert f"10.9.8.{other}" not in text
        assert f"gpu{other}" not in text


def test_manifests_are_printed_as_one_stream(jobctl: Any) -> None:
    """As `kubectl apply --server-side -f -` takes it: nothing is missing that is written into files."""
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


# Bytes of an object's annotations: `kubectl apply` keeps all of the object in one, unless the server applies it.
ANNOTATIONS = 256 << 10


def test_manifests_are_for_the_server_to_apply(jobctl: Any) -> None:
    printed = jobctl("render", "--target", "kubernetes", "--set", "image=x").out
    assert max(len(json.dumps(one)) for one in yaml.safe_load_all(printed)) > ANNOTATIONS
    page = Path(__file__).parents[2] / "docs" / "kubernetes.md"
    for told in (page.read_text(), jobctl("render", "--help").out):
        assert re.findall(r"kubectl\s+apply\s+([a-z-]+)", told) == ["--server-side"]


def test_render_takes_the_options_of_up(jobctl: Any, tmp_path: Path) -> None:
    (tmp_path / "ssh_config").write_text("Host *\n")
    assert jobctl("render", "--ssh-config", "ssh_config").code == 0
    assert jobctl("render", "--ssh-config", "gone").code == 2


def test_a_folder_that_enroot_cannot_mount_is_refused_before_anything_is_written(jobctl: Any, tmp_path: Path) -> None:
    folder = tmp_path / "my jobs"
    folder.mkdir()
    (folder / "job.yaml").write_text(f"{SPEC}image: img\nslurm: {{container: enroot}}\n")
    ran = jobctl("render", "my jobs/job.yaml", "--target", "slurm", "--out", "out")
    assert (ran.code, Path("out").exists()) == (2, False)
    lines = ran.err.splitlines()
    assert [*lines[:2], *(line for line in lines if line.startswith("hint"))] == [
        f"error: Enroot cannot mount a path with a colon, a space, `$` or a backslash: `{folder}` [slurm-container]",
        " --> my jobs/job.yaml:7:20",
        "hint: it is the spec's folder: name another, `slurm: {directory: /shared/jobs}`",
    ]
