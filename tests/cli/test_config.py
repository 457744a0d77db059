"""Defaults that a user sets once: the option counts most, then the environment, then the configuration file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve.job import AS_STARTED, Where, as_started, with_defaults
from jobctl.jobspec.operations.resolve.planning import ssh_options
from jobctl.jobspec.operations.resolve.running import reached_by_default


@pytest.fixture
def home(jobctl: Any, tmp_path: Path) -> Path:
    """The folder of a configuration file, with hosts and an SSH configuration beside it."""
    folder = tmp_path / "config" / "jobctl"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("hosts: cluster.txt\nssh_config: ssh/config\n")
    (folder / "cluster.txt").write_text("one\ntwo\n")
    (folder / "ssh").mkdir()
    (folder / "ssh" / "config").write_text("Host one\n")
    for name in ("given.txt", "variable.txt"):
        Path(name).write_text("three\nfour\n")
    return folder


def test_the_option_counts_most_then_the_environment_then_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Path("given.txt")
    config = home / "config.yaml"
    assert as_started("job.yaml", Where(hosts=given)).hosts == given
    where = as_started("job.yaml", Where())
    assert (where.hosts, where.hosts_from) == (home / "cluster.txt", f"{config}:1")
    monkeypatch.setenv("JOBCTL_HOSTS", "variable.txt")
    where = with_defaults("job.yaml", Where())
    assert (where.hosts, where.hosts_from) == (Path("variable.txt").absolute(), "JOBCTL_HOSTS")


@pytest.mark.parametrize("where", [Where(target="local"), Where(target="kubernetes"), Where(context="lab")])
@pytest.mark.usefixtures("home")
def test_a_job_that_runs_elsewhere_takes_no_default_hosts(where: Where) -> None:
    assert with_defaults("job.yaml", where) == where


@pytest.mark.usefixtures("home")
def test_a_job_that_is_known_stays_where_it_is() -> None:
    job = JobDir(Path("state/jobs/small"))
    job.create()
    (job.root / "job.json").write_text('{"target": "local", "spec": null}')
    for one in ("small", "job.yaml"):
        if one == "job.yaml":
            assert as_started(one, Where()).hosts is None
        assert reached_by_default(one, AS_STARTED).hosts is None


def test_a_job_without_a_trace_here_is_looked_for_on_the_default_hosts(home: Path) -> None:
    assert reached_by_default("elsewhere", AS_STARTED).hosts == home / "cluster.txt"
    JobDir(Path("state/jobs/elsewhere")).create()  # it was here, and is down: its history is shown
    assert reached_by_default("elsewhere", AS_STARTED).hosts is None


def test_the_ssh_configuration_is_a_default_for_new_jobs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobctl.jobspec.deploy.model.inventory import Inventory

    ours = home / "ssh" / "config"
    assert ssh_options(None, accept_new=False, known=None).config == ours
    assert ssh_options(None, accept_new=False, known=Inventory(())).config is None  # as the job was started
    other = home / "cluster.txt"
    assert ssh_options(other, accept_new=False, known=None).config == other
    monkeypatch.setenv("JOBCTL_SSH_CONFIG", str(home / "gone"))
    with pytest.raises(Refused) as caught:
        ssh_options(None, accept_new=False, known=None)
    assert caught.value.message == f"JOBCTL_SSH_CONFIG: there is no file {home}/gone"


def test_commands_say_that_default_hosts_are_used(jobctl: Any, home: Path) -> None:
    ran = jobctl("validate", "-o", "json")
    codes = [d["code"] for d in json.loads(ran.out)["diagnostics"]]
    said = f"hosts: {home}/cluster.txt (default, from {home}/config.yaml:1; `--target local` is this machine)"
    assert (ran.code, codes, ran.err.splitlines()) == (2, ["image-missing"], [said])
    assert jobctl("validate", "--target", "local").err == "job.yaml: valid\n"


def test_data_is_looked_for_on_the_default_hosts(jobctl: Any, home: Path) -> None:
    (home / "cluster.txt").write_text("127.0.0.1:1\n")
    (home / "config.yaml").write_text("hosts: cluster.txt\n")
    ran = jobctl("data", "list", "-o", "json")
    said = f"hosts: {home}/cluster.txt (default, from {home}/config.yaml:1)"
    failed = [(one["host"], one["code"]) for one in json.loads(ran.out)["failed_hosts"]]
    assert (ran.code, ran.err.splitlines()[0], failed) == (3, said, [("127.0.0.1", "connection-refused")])
    (home / "config.yaml").unlink()
    ran = jobctl("data", "list")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: `data` looks at hosts, and none are named")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host: a.txt\n", ["error: unknown key `host`", ":1:1", "hint: did you mean `hosts`?"]),
        ("colour: red\n", ["error: unknown key `colour`", ":1:1", "hint: known keys: hosts, ssh_config, notify"]),
        ("hosts: [a.txt]\n", ["error: `hosts` is the path of a file", ":1:"]),
        ("ssh_config:\n", ["error: `ssh_config` is the path of a file", ":1:1"]),
        ("- hosts\n", ["error: a configuration is a mapping of keys to values", ":1:1"]),
        ("hosts: 'a\n", ["error: ", ":1:"]),
        ("hosts: a.txt\nhosts: b.txt\n", ["error: the key `hosts` appears twice", ":2:1"]),
    ],
)
def test_what_is_wrong_with_the_file_is_told_with_its_place(
    jobctl: Any, home: Path, text: str, said: list[str]
) -> None:
    (home / "config.yaml").write_text(text)
    ran = jobctl("config")
    assert (ran.code, ran.out) == (2, "")
    assert f"{home}/config.yaml{said[1]}" in ran.err
    assert all(words in ran.err for words in said)
    assert json.loads(jobctl("config", "-o", "json").out)["error"]["code"] == "invalid-config"


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "x-mine: 1\n"])
def test_an_empty_file_sets_nothing(jobctl: Any, home: Path, text: str) -> None:
    (home / "config.yaml").write_text(text)
    assert json.loads(jobctl("config", "-o", "json").out)["values"]["hosts"]["from"] == "default"


def test_a_file_with_errors_blocks_no_job_that_is_known(jobctl: Any, home: Path) -> None:
    (home / "config.yaml").write_text("nonsense: 1\n")
    assert jobctl("up", "--dry-run").code == 2
    JobDir(Path("state/jobs/small")).create()
    assert jobctl("down", "small").code == 0


def test_config_shows_values_and_where_they_come_from(jobctl: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBCTL_HOSTS", "~/gone.txt")
    monkeypatch.setenv("HOME", "/home/ml")
    assert json.loads(jobctl("config", "-o", "json").out) == {
        "file": f"{home}/config.yaml",
        "exists": True,
        "values": {
            "hosts": {"value": "/home/ml/gone.txt", "from": "environment", "place": "JOBCTL_HOSTS"},
            "ssh_config": {"value": f"{home}/ssh/config", "from": "config", "place": f"{home}/config.yaml:2"},
            "state_dir": {"value": str(Path("state").absolute()), "from": "environment", "place": "JOBCTL_STATE_DIR"},
            "notify": {"value": [], "from": "default", "place": None},
        },
    }
    rows = [line.split()[:2] for line in jobctl("config").out.splitlines()]
    assert rows[:2] == [["KEY", "VALUE"], ["hosts", "/home/ml/gone.txt"]]


def test_without_a_file_all_is_as_ever(jobctl: Any, tmp_path: Path) -> None:
    ran = jobctl("config")
    assert (ran.code, ran.err) == (0, f"there is no configuration file {tmp_path}/config/jobctl/config.yaml\n")
    assert [line.split()[-1] for line in ran.out.splitlines()] == [
        "FROM",
        "default",
        "default",
        "JOBCTL_STATE_DIR",
        "default",
    ]


NOTIFY = """\
notify:
- {on: [failed, hang], webhook: HOOK, format: slack}
- {on: failed, email: [a@example.com, b@example.com]}
"""


def test_config_shows_who_is_told(jobctl: Any, home: Path) -> None:
    (home / "config.yaml").write_text(NOTIFY)
    said = json.loads(jobctl("config", "-o", "json").out)["values"]["notify"]
    assert (said["from"], said["place"]) == ("config", f"{home}/config.yaml:1")
    channel = {"webhook": {"env": "HOOK"}, "from_hosts": False, "format": "slack", "command": []}
    assert said["value"][0] == {"on": ["failed", "hang"], **channel}
    out = jobctl("config").out
    assert "failed, hang: webhook HOOK (slack)" in out
    assert "failed: mail to a@example.com, b@example.com" in out


def test_what_is_wrong_with_notify_has_a_place(jobctl: Any, home: Path) -> None:
    (home / "config.yaml").write_text(NOTIFY.replace("HOOK", "https://x/y").replace("[failed, hang]", "[fail]"))
    ran = jobctl("config")
    assert ran.code == 2
    assert f"{home}/config.yaml:2:9" in ran.err
    assert "did you mean `failed`?" in ran.err
    assert "[secret-in-spec]" in ran.err
