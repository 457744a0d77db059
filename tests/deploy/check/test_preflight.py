"""Preflight on this very machine: what it finds out is removed again, whatever happens."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.check import preflight as preflight_module
from jobctl.jobspec.deploy.check.preflight import Preflight
from jobctl.jobspec.deploy.check.survey import CheckedHost
from jobctl.jobspec.deploy.host import facts
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.engine_kind import EngineKind
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.fanout import MAX_PARALLEL
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import parse_hosts


def host_job(directory: Path) -> HostJob:
    (host,) = parse_hosts(f"localhost dir={directory}\n", "hosts.txt").hosts
    return HostJob(host, LocalTransport(), "job", "ssh")


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob(".*"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("step", ["_engine", "_sharing"])
def test_nothing_is_left_when_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    def interrupt(*_: object) -> None:
        assert [name[:7] for name in left(tmp_path)] == [".check-"]
        raise error

    (tmp_path / "mine").touch()
    monkeypatch.setattr(Preflight, step, interrupt)
    with pytest.raises(error):
        Preflight([host_job(tmp_path)], None).run()
    assert os.listdir(tmp_path) == ["mine"]


def test_what_a_killed_check_has_left_goes_with_the_next(tmp_path: Path) -> None:
    for name, age in (("old", 7200), ("young", 60)):
        (tmp_path / f".check-{name}").touch()
        os.utime(tmp_path / f".check-{name}", (time.time() - age,) * 2)
    facts.ask(host_job(tmp_path), "mine", [], [])
    assert left(tmp_path) == [".check-mine", ".check-young"]


def test_a_token_in_the_checkpoint_directory_goes_too(tmp_path: Path) -> None:
    (tmp_path / ".jobctl-check-old").touch()
    os.utime(tmp_path / ".jobctl-check-old", (time.time() - 7200,) * 2)
    facts.mark(host_job(tmp_path), str(tmp_path), "mine")
    assert left(tmp_path) == [".jobctl-check-mine"]


def test_what_a_host_says_of_itself_may_be_anything() -> None:
    text = "now 17%N\nmtu eth0 ²\nmtu lo 65536\nfree ²\ngpu ² x\ngpu 0 uuid\ncompute-apps uuid 1 python\nname\n\n"
    found = facts._parse(text, 100.0, 101.0)
    assert (found.skew, found.mtu, found.number("free"), found.busy) == (0.0, {"lo": 65536}, None, {0: "1 python"})
    assert facts._parse("now 90.500000000\n", 100.0, 101.0).skew == -9.5


def test_one_host_that_reaches_the_registry_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hands the image on. Other answers of a registry are the same for all hosts."""
    answers = {"h1": "registry-unreachable", "h2": "", "h3": "image-unknown"}

    def ask(job: Any, image: str) -> str:
        if answers[job]:
            raise HostError(job, answers[job], "no")
        return "sha256:new"

    monkeypatch.setattr(images, "digest_in_registry", ask)
    seats: list[Any] = [CheckedHost(cast(HostJob, name), (), ()) for name in answers]
    preflight: Any = SimpleNamespace(seats=seats)
    Preflight._ask_registry(preflight, seats[0], "app:1")
    for seat, image in ((seats[0], "app@sha256:new"), (seats[2], "app:1")):
        with pytest.raises(HostError):
            Preflight._ask_registry(preflight, seat, image)
    answers["h2"] = "registry-unreachable"
    with pytest.raises(HostError):
        Preflight._ask_registry(preflight, seats[0], "app:1")


class HasForAnother:
    """A preflight of a host that has an image for another processor; the registry gives one unless it `refuses`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, having: list[str], *, refuses: bool) -> None:
        there = Image("app:1", ("sha256:1", "content:arm"), ())
        monkeypatch.setattr(images, "look", lambda job, image, *, fit=False: None if fit else there)
        monkeypatch.setattr(preflight_module, "misfit", lambda engine, image: "is for arm64, and this host has amd64")
        job: Any = SimpleNamespace(host=SimpleNamespace(name="h1"), engine=None)
        self.seat = CheckedHost(job, (), engine=EngineKind("docker", "26.1.5", "layers", processor="amd64"))
        self.preflight, self.refuses = Preflight([], None), refuses
        monkeypatch.setattr(self.preflight, "_ask_registry", self._ask)
        others = {"amd64": having}
        monkeypatch.setattr(self.preflight.sources, "have", lambda image, processor="": others.get(processor, []))

    def _ask(self, seat: CheckedHost, image: str) -> None:
        if self.refuses:
            raise HostError("h1", "registry-unreachable", "no answer", "is it up?")

    def look(self, pull: str) -> tuple[str | None, list[str], list[str | None]]:
        container: Any = SimpleNamespace(image="app:1", pull=pull)
        content, sources = self.preflight._can_be_had(self.seat, container)
        return content, list(sources), [finding.code for finding in self.preflight.survey.findings]


@pytest.mark.parametrize(
    ("pull", "having", "refuses", "found"),
    [
        ("missing", ["h2"], True, (None, ["h2"], [])),
        ("missing", [], False, (None, [], [])),
        ("missing", [], True, ("content:arm", [], ["image-processor"])),
        ("never", ["h2"], True, ("content:arm", [], ["image-processor"])),
        ("always", [], False, (None, [], [])),
    ],
)
def test_an_image_for_another_processor_counts_only_if_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch, pull: str, having: list[str], refuses: bool, found: object
) -> None:
    assert HasForAnother(monkeypatch, having, refuses=refuses).look(pull) == found


def test_a_warning_of_an_image_for_another_processor_says_why_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, findings = "its image `app:1` is for arm64, and this host has amd64", dict[str, tuple[str, str | None]]()
    for pull in ("missing", "never"):
        host = HasForAnother(monkeypatch, ["h2"] if pull == "never" else [], refuses=True)
        host.look(pull)
        (found,) = host.preflight.survey.findings
        findings[pull] = found.message, found.hint
    assert findings == {
        "missing": (f"{there}; no answer", "is it up?"),
        "never": (there, "`pull: missing` and `pull: always` get it for this host's"),
    }


def test_always_needs_the_registry_whatever_image_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match="no answer"):
        HasForAnother(monkeypatch, [], refuses=True).look("always")


def test_hosts_that_wait_for_each_other_all_begin_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each container stays until all others have called it: the last host must not wait for the first one to end."""
    count = MAX_PARALLEL + 2
    there = threading.Barrier(count)
    for step in ("_meet", "_engine", "_image", "_in_use"):
        monkeypatch.setattr(Preflight, step, lambda self, seat: None)
    monkeypatch.setattr(Preflight, "_meeting_ports", lambda self, plan: (20_000,))
    monkeypatch.setattr(Preflight, "_container", lambda self, seat: there.wait(20.0))
    hosts = parse_hosts(f"h[1-{count}]\n", "hosts.txt").hosts
    jobs = [HostJob(host, LocalTransport(host.name), "job", "ssh") for host in hosts]
    preflight = Preflight(jobs, cast(Any, SimpleNamespace(nodes=(), services=(), checkpoint=None)))
    preflight._look()
    assert (there.broken, preflight.survey.findings) == (False, [])
