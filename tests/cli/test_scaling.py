"""`scale`: which hosts a job gets that is planned again from what it was started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.lifecycle import on_hosts, scale
from jobctl.jobspec.operations.lifecycle.base import UpOptions
from jobctl.jobspec.operations.lifecycle.records import record_of, source_of
from jobctl.jobspec.operations.resolve.job import Reached, Where, check, compiled_of, job_of_name
from jobctl.jobspec.operations.resolve.planning import inventory_for, plan_of

SPEC = "name: small\nframework: torch\nmodule: train\nimage: img\ncheckpoint: /shared\nnodes: '1:3'\n"
Planned = list[tuple[Any, ...]]


@pytest.fixture
def planned(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """What `scale` plans of a job that is up on the hosts `a` and `b`, without `d`; it goes no further."""
    Path("job.yaml").write_text(SPEC)
    Path("hosts.txt").write_text("a\nd\nb\n")
    compiled = compiled_of(check("job.yaml", None, Where("ssh", Path("hosts.txt"), exclude="d")))
    plan, directory = plan_of(compiled), job_of_name("small")
    directory.create()
    directory.remember(
        record_of(compiled, plan, inventory_for(compiled, Reached())), plan, source_of(compiled, plan, {})
    )
    found: Planned = []

    def plan_in_place(compiled: Any, reached: Reached, count: int) -> Any:
        hosts = [host.name for host in compiled.hosts]
        found.append((compiled.target, hosts, str(compiled.hosts_path), compiled.spec.image, count))
        raise Refused("it goes no further")

    monkeypatch.setattr(on_hosts, "plan_in_place", plan_in_place)
    return found


def test_scale_takes_another_hosts_file(jobctl: Any, planned: Planned, tmp_path: Path) -> None:
    """All else is as the job was started, whatever the spec says by now, and hosts that were left out stay so."""
    Path("job.yaml").write_text(SPEC.replace("img", "other"))
    Path("more.txt").write_text("b\nd\nc\na\n")
    for options in ((), ("--hosts", "more.txt")):
        assert jobctl("scale", "small", "3", *options).err == "error: it goes no further\n"
    assert planned == [
        ("ssh", ["a", "b"], str(tmp_path / "hosts.txt"), "img", 3),
        ("ssh", ["b", "c", "a"], "more.txt", "img", 3),
    ]


def test_scale_of_a_job_whose_hosts_file_is_gone(jobctl: Any, planned: Planned, tmp_path: Path) -> None:
    gone = tmp_path / "hosts.txt"
    gone.rename("moved.txt")
    ran = jobctl("scale", "small", "2")
    assert (ran.code, ran.err.splitlines()) == (
        2,
        [f"error: job `small` was started with {gone}, which is gone", "hint: name its hosts: `--hosts hosts.txt`"],
    )
    jobctl("scale", "small", "2", "--hosts", "moved.txt")
    assert planned == [("ssh", ["a", "b"], "moved.txt", "img", 2)]


def test_scale_takes_the_option_that_its_hint_names(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(job: str, count: int, reached: Reached, options: UpOptions, reporter: object) -> None:
        raise Refused(f"check: {options.check}")

    monkeypatch.setattr(scale, "scale_job", scaled)
    assert jobctl("scale", "small", "2").err == "error: check: True\n"
    assert jobctl("scale", "small", "2", "--skip-check").err == "error: check: False\n"


def test_a_job_on_this_machine_is_scaled_to_no_hosts(jobctl: Any) -> None:
    Path("hosts.txt").write_text("a\n")
    compiled = compiled_of(check("job.yaml", None, Where("local")))
    plan, directory = plan_of(compiled), job_of_name("small")
    directory.create()
    directory.remember(record_of(compiled, plan, None), plan, source_of(compiled, plan, {}))
    ran = jobctl("scale", "small", "2", "--hosts", "hosts.txt")
    first = "error: target `local` is this machine: it takes no hosts file"
    assert (ran.code, ran.err.splitlines()[0]) == (2, first)


@pytest.mark.parametrize("option", ["--hosts", "--ssh-config", "--accept-new-host-keys"])
def test_supervise_says_who_takes_hosts(jobctl: Any, option: str) -> None:
    ran = jobctl("supervise", "small", option, *([] if option == "--accept-new-host-keys" else ["file"]))
    why = "it uses the hosts and SSH options that the last `up` from this machine has recorded"
    hint = (
        "give them to `jobctl up`, which leaves a supervisor behind; or to `up --no-supervise`, then `jobctl supervise`"
    )
    assert (ran.code, ran.err) == (2, f"error: `supervise` takes no `{option}`: {why}\nhint: {hint}\n")
