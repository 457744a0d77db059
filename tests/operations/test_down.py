"""What `down` says of hosts that it does not know, and what it leaves to the command that gets the lock after it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import HostError, UnlistedHost
from jobctl.jobspec.deploy.model.inventory import Inventory, dump_inventory
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store import lock
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.past import left_elsewhere
from jobctl.jobspec.operations.errors import PartlyDone
from jobctl.jobspec.operations.lifecycle import down
from jobctl.jobspec.operations.lifecycle.base import JobRequest
from jobctl.jobspec.operations.lifecycle.down import TakenDown, take_down
from jobctl.jobspec.operations.reporter import SILENT
from jobctl.jobspec.plan.types import HostRef, Plan
from jobctl.jobspec.spec.hosts import Host
from jobctl.options import Format
from jobctl.views.down import finish_down
from tests.deploy.apply.test_executor import RUNNING, TWO

ON_HOSTS = replace(TWO, target="compose")
HERE = replace(TWO, nodes=tuple(replace(node, host=HostRef("localhost", "127.0.0.2")) for node in TWO.nodes))
FILE = Inventory((Host("h0"), Host("h1"), Host("unused"), Host("s0", spare=True)))


class Job:
    """A job whose nodes are on h0 and h1, of which commands reach the hosts that they name."""

    plan = None

    def __init__(self, directory: Path) -> None:
        self.job, self.homes = JobDir(directory / "jobs" / "demo"), {"h0", "h1", "s0"}
        self.named: tuple[str, ...] = ()
        self.failures: dict[str, HostError] = {}
        self.away: dict[str, HostError] = {}
        self.unreadable: tuple[str, ...] = ()
        self.job.create()
        self._lock = lock.JobLock(self.job.lock)
        self.check_here = self._lock.check

    def remembered(self, plan: Plan = ON_HOSTS, reach: Inventory | None = FILE) -> Job:
        """Have it known on this machine, from where it was brought up."""
        self.job.remember({"target": plan.target, "reach": dump_inventory(reach) if reach else None}, plan, {})
        return self

    def without(self, code: str, *hosts: str) -> Job:
        """From now on, do not let these hosts answer."""
        self.away = {host: HostError(host, code, "it does not answer") for host in hosts}
        return self

    def down(self, *hosts: str, lost: tuple[str, ...] = ()) -> TakenDown:
        """Take the job down on `hosts`."""
        self.named = hosts
        return take_down(self, JobRequest(lost=lost), SILENT)  # type: ignore[arg-type]

    def places(self) -> tuple[str, ...]:
        return self.named

    def owners(self, observed: Observed) -> frozenset[str]:
        return observed.owners

    def has_files(self) -> bool:
        return bool(self.homes & set(self.named))

    def events(self) -> Any:
        return SimpleNamespace(gather=lambda: None)

    def lock(self, what: str, *, break_it: bool) -> Any:
        return self._lock.hold(what, break_it=break_it)

    def observe(self) -> Observed:
        """See it, as Fleet does: hosts that the generation names and nobody here knows do not answer."""
        tell = self.has_files()
        unknown = {"h0", "h1"} & self.homes - set(self.named) if tell else set()
        self.failures = {
            host: UnlistedHost(host, "it runs there", "`--hosts` names all") for host in unknown
        } | self.away
        if self.named and set(self.named) <= set(self.away):
            raise AllUnreachable(
                self.away, Observed(NOTHING, (), supervised=False, unreachable=dict.fromkeys(self.away, ""))
            )
        self.failures |= {host: HostError(host, "unreadable", "its files cannot be read") for host in self.unreadable}
        silent = {host: error.message for host, error in self.failures.items()}
        return replace(RUNNING, unreachable=silent) if tell else Observed(NOTHING, (), supervised=False)

    def take_down(self, grace: float) -> tuple[None, dict[str, Any]]:
        with contextlib.suppress(AllUnreachable):
            self.observe()
        self.homes -= set(self.named) - set(self.away)
        return None, {host: error for host, error in self.away.items() if host in self.named}


def test_a_host_that_down_does_not_know_is_named_until_it_is_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job was not brought up from here: only its hosts say where it is, and those that are down tell no more."""
    job = Job(tmp_path)
    done = job.down("h0", "s0")
    assert finish_down("demo", done, Format.text) == 4
    told = capsys.readouterr().err
    assert "error: h1: it runs there\nhint: `--hosts` names all\n" in told
    assert "--lost" not in told  # it was not even asked
    again = job.down("h0", "s0")
    assert (set(again.failed), finish_down("demo", again, Format.text)) == ({"h1"}, 4)
    assert "error: h1: " in capsys.readouterr().err
    assert (dict(job.down("h0", "h1", "s0").failed), job.homes) == ({}, set())
    assert not job.down("h0").anything


@pytest.mark.parametrize("hosts", [("h0",), ("another",)])
def test_a_job_is_not_forgotten_while_hosts_have_it_that_down_does_not_know(
    tmp_path: Path, hosts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its nodes may be there, and what waits on a spare. Without `--hosts`, `down` goes everywhere."""
    job = Job(tmp_path).remembered()
    for _ in range(2):
        done = job.down(*hosts)
        assert set(done.failed) == {"h0", "h1", "s0"} - set(hosts)
        assert finish_down("demo", done, Format.text) == 4
        assert (
            "`jobctl down demo` without `--hosts`, `--context` and `--namespace` goes there" in capsys.readouterr().err
        )
        assert job.job.job_record() is not None
    done = job.down(*(host.name for host in FILE.hosts))
    assert (dict(done.failed), job.homes, job.job.job_record()) == ({}, set(), None)


def test_a_job_of_this_machine_is_not_forgotten_where_down_looks_on_hosts(tmp_path: Path) -> None:
    job = Job(tmp_path).remembered(HERE, None)
    assert set(job.down("another").failed) == {"localhost"}
    assert job.job.job_record() is not None
    assert dict(job.down("localhost").failed) == {}


@pytest.mark.parametrize("target", ["kubernetes", "slurm"])
def test_a_job_of_nodes_that_others_choose_is_not_forgotten_where_down_looks_elsewhere(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes on there; an `up` elsewhere would start it a second time, on the same checkpoint."""
    job, home = Job(tmp_path), {"kubernetes": "lab/ml", "slurm": "login"}[target]
    job.homes = {home}
    cluster = {"context": "lab", "namespace": "ml", "kinds": []} if target == "kubernetes" else None
    reach = dump_inventory(Inventory((Host("login"),))) if target == "slurm" else None
    job.job.remember({"target": target, "reach": reach, "cluster": cluster}, replace(TWO, target=target), {})
    for _ in range(2):
        done = job.down("lab/other")
        assert (finish_down("demo", done, Format.text), job.homes, job.job.job_record() is None) == (4, {home}, False)
        told = capsys.readouterr().err
        assert f"error: {home}: job `demo` was brought up there, and it is not among the places of this command" in told
        assert "hint: `jobctl down demo` without `--hosts`, `--context` and `--namespace` goes there" in told
    assert (dict(job.down(home).failed), job.homes, job.job.job_record()) == ({}, set(), None)
    assert (job.down("lab/other").anything, left_elsewhere(job.job)) == (False, ())


def test_what_is_noted_of_a_job_that_is_not_up_keeps_nobody(tmp_path: Path) -> None:
    """Its `up`, or its `down`, was killed between two files."""
    job = Job(tmp_path).remembered()
    (job.job.root / "job.json").unlink()
    done = job.down("localhost")
    assert (done.anything, dict(done.failed), job.job.plan()) == (False, {}, None)


@pytest.mark.parametrize("is_up", [True, False])
def test_what_the_next_command_writes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_up: bool) -> None:
    """An `up` that waits gets the lock as soon as `down` lets go of it."""
    import_module("jobctl.jobspec.notify.teller")  # with the lock as it is
    job, first = Job(tmp_path), lock.hold
    job.homes = job.homes if is_up else set()
    job.job.channels.write_text("{}")
    with contextlib.ExitStack() as up:

        @contextlib.contextmanager
        def hold(path: Path, command: str, wait: float | None, *, expires: bool) -> Iterator[lock.Hold]:
            with first(path, command, wait, expires=expires) as held:
                yield held
            up.enter_context(first(path, "up", 0.0))
            job.job.channels.write_text('{"channels": []}')

        monkeypatch.setattr(lock, "hold", hold)
        assert job.down("h0", "h1", "s0").anything is is_up
        assert (job.job.channels.exists(), lock.read_holder(job.job.lock).get("command")) == (True, "up")


@pytest.mark.parametrize(("lost", "error"), [("events", lock.LockLost), ("take_down", PartlyDone)])
def test_who_lost_the_lock_on_the_way_forgets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, error: type[Exception]
) -> None:
    """It was stopped by Ctrl-Z, say, as it collected; what is known now is what another command has brought up since."""
    job = Job(tmp_path).remembered()
    as_ever = getattr(job, lost)

    def lose(*of: Any) -> Any:
        lock.break_lock(job.job.lock)
        return as_ever(*of)

    monkeypatch.setattr(job, lost, lose)
    with pytest.raises(error, match="the lock on this machine was lost"):
        job.down(*ALL)
    assert (job.job.job_record() is None, job.homes == set()) == (False, lost == "take_down")


@pytest.mark.parametrize("where", ["hosts", "nowhere", "given up"])
def test_who_loses_the_lock_as_it_sends_messages_removes_nothing(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there then is of the command that has taken it: without its channels, nobody would tell of the job."""
    job = Job(tmp_path)
    job.homes = job.homes if where == "hosts" else set()
    lost = ALL if where == "given up" else ()
    job.without("silent", *lost)

    def send(directory: JobDir, reporter: object) -> None:
        lock.break_lock(directory.lock)
        for path in (directory.lock, directory.channels):
            path.write_text("of another command")

    monkeypatch.setattr(down, "tell_last", send)
    with pytest.raises(PartlyDone, match="the lock on this machine was lost"):
        job.down(*ALL, lost=lost)
    assert [path.read_text() for path in (job.job.lock, job.job.channels)] == ["of another command"] * 2


@pytest.mark.parametrize("is_up", [True, False])
def test_nothing_of_notifications_is_left(tmp_path: Path, is_up: bool) -> None:
    job = Job(tmp_path)
    job.homes = job.homes if is_up else set()
    parts = [job.job.root / f".{name}.k3_x9abc" for name in ("channels.json", "outbox.json", "source.json")]
    for path in (job.job.channels, job.job.outbox, job.job.lock, *parts):  # parts: of a command that was killed
        path.write_text("{}")
    assert job.down("h0", "h1", "s0").anything is is_up
    assert [path.name for path in sorted((tmp_path / "jobs").rglob("*"))] == (["demo", "events.jsonl"] if is_up else [])


ALL = ("h0", "h1", "s0")


@pytest.mark.parametrize(
    ("away", "code"), [(("h1",), "unreachable"), (("h1", "s0"), "no-route"), (("h1",), "unknown-name"), (ALL, "silent")]
)
def test_what_is_on_hosts_that_are_gone_for_good_is_given_up(
    tmp_path: Path, away: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path).remembered().without(code, *away)
    done = job.down(*ALL, lost=away)
    assert (dict(done.failed), set(done.lost), job.homes, job.job.job_record()) == ({}, set(away), set(away), None)
    assert finish_down("demo", done, Format.json) == 0
    told = capsys.readouterr()
    assert f"no answer from {', '.join(away)}: `down` gave up what job `demo` has there; if a host comes" in told.err
    assert [host["host"] for host in json.loads(told.out)["hosts"] if not host["reachable"]] == sorted(away)
    assert (json.loads(told.out)["down"], json.loads(told.out)["lost"]) == (True, sorted(away))
    assert left_elsewhere(job.job) == ()
    done = job.without(code).down(*ALL)  # they have come back
    assert (dict(done.failed), job.homes) == ({}, set())


def test_a_host_that_is_said_to_be_lost_and_answers_is_cleaned(tmp_path: Path) -> None:
    done = (job := Job(tmp_path).remembered()).down(*ALL, lost=("h1",))
    assert (dict(done.failed), dict(done.lost), job.homes) == ({}, {}, set())


@pytest.mark.parametrize(("code", "left"), [("unknown-name", set()), ("key-refused", {"h1"})])
def test_where_the_job_never_was_nothing_is_left(tmp_path: Path, code: str, left: set[str]) -> None:
    job = Job(tmp_path).remembered().without(code, "h1")
    job.job.note_unmet(["h1"])
    done = job.down(*ALL)
    assert (set(done.failed), dict(done.lost)) == (left, {})


@pytest.mark.parametrize(
    ("code", "lost"), [("docker-down", ("h1",)), ("key-refused", ("h1",)), ("unreachable", ("h0",))]
)
def test_no_other_host_is_given_up(tmp_path: Path, code: str, lost: tuple[str, ...]) -> None:
    """It answers, so that what it lacks can be mended; or it is another host than the one that is said to be lost."""
    job = Job(tmp_path).remembered().without(code, "h1")
    done = job.down(*ALL, lost=lost)
    assert (set(done.failed), dict(done.lost), job.job.job_record() is None) == ({"h1"}, {}, False)


def test_a_job_of_which_no_host_answers_is_given_up_only_as_a_whole(tmp_path: Path) -> None:
    job = Job(tmp_path).remembered().without("no-route", *ALL)
    with pytest.raises(AllUnreachable):
        job.down(*ALL, lost=("h0", "h1"))
    assert job.job.job_record() is not None


def test_a_lost_host_that_down_does_not_know_may_be_given_up_too(tmp_path: Path) -> None:
    job = Job(tmp_path).remembered()
    job.homes -= {"h1"}
    done = job.down("h0", "s0", lost=("h1",))
    assert (dict(done.failed), set(done.lost), job.job.job_record()) == ({}, {"h1"}, None)


def test_a_host_that_the_job_does_not_have_may_be_called_lost(tmp_path: Path) -> None:
    """Of several jobs, some have it; and the command may be repeated when nothing is left."""
    job = Job(tmp_path).remembered()
    assert (dict(job.down(*ALL, lost=("h9",)).failed), job.homes) == ({}, set())
    assert not job.down(*ALL, lost=("h9",)).anything


def test_what_cannot_be_read_on_a_host_keeps_nobody_from_ending_the_job(tmp_path: Path) -> None:
    """The host answers: only what launchers were last told is damaged, or of a newer version."""
    job = Job(tmp_path).remembered()
    job.unreadable = ALL
    assert (dict(job.down(*ALL).failed), job.homes) == ({}, set())


def test_the_remedy_names_a_host_that_may_be_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = Job(tmp_path).remembered().without("no-route", "h1").down(*ALL)
    assert finish_down("demo", done, Format.text) == 4
    hint = "`jobctl down demo` again cleans up there once that is fixed; `--lost h1` gives up what is there if"
    assert f"hint: {hint} that host is gone for good" in capsys.readouterr().err
