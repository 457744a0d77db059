"""What is done with the hosts of a job, which this machine plays: who gets which files, and who is handed what."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.control import Control, Image, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.host_state import HostState
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store import lock
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import Locked, LockLost, read_holder
from jobctl.jobspec.deploy.targets import provision
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.targets.launcher_containers import LauncherContainers
from jobctl.jobspec.deploy.targets.launchers import Launchers
from jobctl.jobspec.deploy.targets.provision import artefacts
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.generation import Generation, first_generation
from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO

FIRST = first_generation(TWO)
DOWN = HostError("h1", "unreachable", "no route to it")


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Two hosts and a spare, with folders of their own, and the files of the job on all of them."""
    known = tuple(Host(name, dir=str(tmp_path / name), spare=name == "s0") for name in ("h0", "h1", "s0"))
    made = Hosts(JobDir(tmp_path / "jobs" / "job"), "ssh", Inventory(known), TWO)
    made.job.create()
    for name, host_job in made.host_jobs.items():
        host_job.transport = LocalTransport(name)
        host_job.send([], ["run", *([] if name == "s0" else [f"node-{name[1]}"])])
    return made


class Unasked(LocalTransport):
    """A host that nobody is to ask."""

    def run(self, *args: object, **how: object) -> NoReturn:
        raise AssertionError(f"{self.host} is asked")


def elsewhere(hosts: Hosts) -> Hosts:
    """The same hosts, as another command knows them."""
    made = Hosts(hosts.job, "ssh", hosts.inventory, TWO)
    for name, host_job in made.host_jobs.items():
        host_job.transport = LocalTransport(name)
    return made


def look(hosts: Hosts, **without: HostError) -> None:
    """See what is on the hosts, as `observe` does; their engines have nothing."""
    hosts.fleet.seen = {name: host_job.observe(()) for name, host_job in hosts.host_jobs.items() if name not in without}
    hosts.fleet.down = without


class OwnDisk(LocalTransport):
    """A host with a disk of its own, which has one directory."""

    def __init__(self, host: str, has: str) -> None:
        super().__init__(host)
        self.has = has

    def run(self, argv: Sequence[str], *args: object, **how: object) -> Result:
        return Result(0 if list(argv) == ["test", "-e", self.has] else 1, b"", b"")


def test_a_fresh_run_shares_no_directory_with_an_earlier_one_on_any_host(hosts: Hosts) -> None:
    """The first host may be a new one, whose disk has nothing yet."""
    look(hosts)
    for name, has in (("h0", "/ck/other"), ("h1", "/ck/fresh-1")):
        hosts.host_jobs[name].transport = OwnDisk(name, has)
    assert (hosts.exists("/ck/fresh-1"), hosts.exists("/ck/fresh-2")) == (True, False)
    hosts.fleet.down = {"h1": DOWN}
    assert not hosts.exists("/ck/fresh-1")


def test_spares_get_the_launcher_and_hosts_their_own_files_only(hosts: Hosts) -> None:
    files = {host: sorted(one.path for one in found) for host, found in artefacts(hosts.fleet, TWO).items()}
    assert files == {"h0": ["launcher.py", "node-0.sh"], "h1": ["launcher.py", "node-1.sh"], "s0": ["launcher.py"]}


def test_root_reads_compose_files_of_hosts_where_it_is_a_stranger_to_the_users_files(tmp_path: Path) -> None:
    """With `docker=sudo`, Compose runs as root, whom a home on NFS may show only what everybody may read."""
    known = (Host("h0", dir=str(tmp_path / "h0")), Host("h1", dir=str(tmp_path / "h1"), docker="sudo"))
    made = Hosts(JobDir(tmp_path / "jobs" / "job"), "compose", Inventory(known), TWO)
    files = artefacts(made.fleet, replace(TWO, target="compose"))
    modes = {host: {one.path: one.mode for one in found} for host, found in files.items()}
    assert [modes[host]["compose.yaml"] for host in ("h0", "h1")] == [0o600, 0o644]


def test_a_node_moves_to_a_spare_first_and_never_to_a_host_without_files(hosts: Hosts) -> None:
    nothing = Observed(Control(), (), supervised=False)
    look(hosts)
    assert hosts.free_hosts(nothing) == ("s0",)
    moved = Observed(Control(replace(FIRST, members=FIRST.members[:1])), (), supervised=False)
    hosts.plan = replace(TWO, nodes=TWO.nodes[:1])
    assert hosts.free_hosts(moved) == ("s0", "h1")
    hosts.fleet.seen = {**hosts.fleet.seen, "s0": HostState((), Control(), {})}
    assert hosts.free_hosts(moved) == ("h1",)


def test_a_host_with_room_for_two_takes_two(hosts: Hosts) -> None:
    look(hosts)
    hosts.fleet.inventory = Inventory(tuple(replace(host, nodes=2) for host in hosts.inventory.hosts))
    assert hosts.free_hosts(Observed(Control(), (), supervised=False)) == ("s0", "s0", "h0", "h1")


def test_a_generation_is_handed_to_all_hosts_and_kept_here(hosts: Hosts) -> None:
    look(hosts)
    ledger = Ledger(1.0, "code")
    with hosts.lock("up"):
        assert dict(hosts.begin(FIRST, ledger)) == {}
    for name in ("h0", "h1"):
        assert hosts.host_jobs[name].control() == Control(FIRST, ledger)
    assert hosts.host_jobs["s0"].control() == Control()
    kept = hosts.job.kept_run()[0]
    assert kept is not None
    assert kept["number"] == FIRST.number


def test_a_host_that_a_generation_leaves_out_is_told_too(hosts: Hosts) -> None:
    look(hosts)
    with hosts.lock("up"):
        hosts.begin(replace(FIRST, members=FIRST.members[:1]), Ledger(1.0))
    assert hosts.host_jobs["h1"].control().generation is not None


def test_a_host_that_missed_a_generation_is_handed_it_later(hosts: Hosts) -> None:
    look(hosts)
    ledger = Ledger(1.0, "code")
    with hosts.lock("up"):
        hosts.host_jobs["h1"].transport.run(["rm", "-r", str(hosts.host_jobs["h1"].work / "run")])
        failed = hosts.begin(FIRST, ledger)
        assert sorted(failed) == ["h1"]
        hosts.host_jobs["h1"].send([], ["run"])
        step = Step("hand-over", "generation 1 to h1", "it has an older one", host="h1")
        assert dict(hosts.apply([step])) == {}
    assert hosts.host_jobs["h1"].control() == Control(FIRST, ledger)


def test_others_may_have_the_lock_while_a_command_waits(hosts: Hosts) -> None:
    """It is a command at work all the same."""
    other = elsewhere(hosts)
    with hosts.lock("up"):
        with hosts.let_in("up"):
            assert read_holder(hosts.job.waiting_lock)["command"] == "up"
            with other.lock("down"):
                assert read_holder(hosts.job.lock)["command"] == "down"
        assert (read_holder(hosts.job.lock)["command"], read_holder(hosts.job.waiting_lock)) == ("up", {})
        hosts.fleet.check_lock()
    with other.lock("down"):
        pass


def test_a_command_that_has_waited_leaves_no_lock_where_the_job_was_taken_down(hosts: Hosts, tmp_path: Path) -> None:
    with hosts.lock("up"):
        with hosts.let_in("up"):
            for name in ("h0", "h1", "s0"):
                shutil.rmtree(tmp_path / name)
        with pytest.raises(LockLost, match="the job is down"):
            hosts.fleet.check_lock()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs"]


def test_who_does_not_get_the_lock_back_in_time_is_told_who_has_it(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT", 0.1)
    with pytest.raises(Locked, match="by `down`"), hosts.lock("up"), ExitStack() as stack, hosts.let_in("up"):
        stack.enter_context(elsewhere(hosts).lock("down"))


def test_secrets_are_taken_from_a_host_that_has_them(hosts: Hosts) -> None:
    look(hosts)
    assert hosts.started_with() is None
    hosts.host_jobs["h1"].send_secrets({"TOKEN": "s3cr3t"})
    found = hosts.started_with()
    assert found is not None
    assert found.secrets == {"TOKEN": "s3cr3t"}
    hosts.leave_secrets({})
    assert hosts.started_with() is None


def test_who_loses_the_lock_as_files_are_sent_does_not_count_as_prepared(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` would note it of what another command has proposed meanwhile."""

    def prepare(*_: object) -> tuple[None, dict[str, HostError]]:
        lock.break_lock(hosts.job.lock)
        return None, {}

    monkeypatch.setattr(provision, "prepare", prepare)
    with hosts.lock("up"), pytest.raises(LockLost, match="on this machine"):
        hosts.prepare(TWO, RuntimeInputs({}, {}))


def test_who_has_lost_the_lock_leaves_secrets_as_they_are(hosts: Hosts) -> None:
    """Another command has brought its own."""
    look(hosts)
    hosts.host_jobs["h1"].send_secrets({"TOKEN": "s3cr3t"})
    with hosts.lock("up"):
        lock.break_lock(hosts.job.lock)
        with pytest.raises(LockLost, match="on this machine"):
            hosts.leave_secrets({})
    assert hosts.host_jobs["h1"].secrets() == {"TOKEN": "s3cr3t"}


def test_the_ledger_is_kept_on_hosts_that_have_a_part(hosts: Hosts) -> None:
    look(hosts, h1=DOWN)
    with hosts.lock("supervisor"):
        hosts.keep(Ledger(7.0))
    assert [hosts.host_jobs[name].control().ledger.began for name in ("h0", "h1", "s0")] == [7.0, 0.0, 0.0]


def test_where_a_path_is_looked_for_is_a_host_that_answers(hosts: Hosts, tmp_path: Path) -> None:
    look(hosts, h0=HostError("h0", "unreachable", "no route to it"))
    (tmp_path / "there").touch()
    hosts.host_jobs["h0"].transport = Unasked("h0")
    assert hosts.exists(str(tmp_path / "there"))
    assert not hosts.exists(str(tmp_path / "not-there"))


def test_a_spare_is_known_by_what_it_was_given(hosts: Hosts) -> None:
    before = hosts.spares(TWO)
    assert list(before) == ["s0"]
    node = TWO.nodes[0]
    other = replace(node, container=replace(node.container, image="another:1"))
    assert hosts.spares(replace(TWO, nodes=(other, *TWO.nodes[1:])))["s0"] != before["s0"]
    home = replace(node, host=replace(node.host, name="s0"))
    assert hosts.spares(replace(TWO, nodes=(home, *TWO.nodes[1:]))) == {}


def test_a_job_that_was_brought_up_again_by_an_earlier_clock_is_not_what_it_was(hosts: Hosts) -> None:
    """A supervisor that knows the last one would hand that to all hosts, while one of them is silent."""
    last, again = (
        Control(replace(FIRST, number=number, began=began), Ledger(began)) for number, began in ((7, 90.0), (1, 20.0))
    )
    seen = {name: HostState((), last, {}) for name in ("h0", "s0")}
    assert hosts.fleet.merge(seen, {"h1": DOWN}).control == last
    lost_its_disk = {**seen, "h0": HostState((), Control(), {})}
    assert hosts.fleet.merge(lost_its_disk, {"h1": DOWN}).control == last
    seen = {name: HostState((), again, {}) for name in ("h0", "s0")}
    assert hosts.fleet.merge(seen, {"h1": DOWN}).control == again


class Starter:
    """Starts launchers that report at once. `found` is the generation that was on each host by then."""

    timeout, pause = 1.0, 0.0

    def __init__(self) -> None:
        self.found: dict[str, Generation | None] = {}

    def start(self, host_job: HostJob, node: int, prepared: Image | None) -> None:
        self.found[host_job.host.name] = host_job.control().generation
        report = json.dumps({"node": node, "state": "waiting"})
        Path(str(host_job.work / f"node-{node}" / "report.json")).write_text(report)

    def check(self, host_job: HostJob, node: int, seen: HostState) -> None:
        """It never ends."""


ALONE = replace(FIRST, members=FIRST.members[:1])  # without node 1, whose launcher is started


@pytest.mark.parametrize(
    ("runs", "known"),
    [(ALONE, ALONE), (FIRST, None), (replace(ALONE, command="stop"), None), (None, None)],
    ids=["joins", "has-a-part", "stopped", "nothing-runs"],
)
def test_a_launcher_knows_what_runs_without_its_node(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, runs: Generation | None, known: Generation | None
) -> None:
    """So that it gets its standby ready beside that."""
    look(hosts)
    monkeypatch.setattr(hosts.host_jobs["h1"].containers, "seen", tuple)
    hosts.fleet.known, starter = Control(runs, Ledger(1.0)), Starter()
    start = Step("start", "node 1 on h1", "not running", 1, host="h1")
    assert dict(Launchers(hosts.fleet, starter).apply([start], None)) == {}  # type: ignore[arg-type]
    assert starter.found == {"h1": known}


def test_a_version_that_begins_goes_on_with_the_newest_of_an_output_file(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran while it was sent has written on, or it has run before another one did."""
    host_job = hosts.host_jobs["h0"]
    work = Path(host_job.work)
    for moment, name in enumerate(
        ("v2/deep/a 1.txt", "v1/deep/a 1.txt", "v1/mine", "v2/mine", "v1/none", "v1/train.py")
    ):
        path = work / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (moment, moment))
    (work / "code" / "v2" / "deep").chmod(0o2770)
    (work / ".results").write_bytes(b"./deep/a 1.txt\0./mine\0./none\0./new\0")
    monkeypatch.setattr(HostJob, "start", lambda job, node, image: None)
    for version in ("v3", "v2"):  # v3 is not there
        hosts.plan = replace(TWO, code=Code("/code", "/workspace", (), results=("deep/a 1.txt",), version=version))
        LauncherContainers(hosts.fleet).start(host_job, 0, Image("image", (), ()))
    there = {name: (work / "code" / "v2" / name).read_text() for name in ("deep/a 1.txt", "mine", "none")}
    assert there == {"deep/a 1.txt": "v1/deep/a 1.txt", "mine": "v2/mine", "none": "v1/none"}
    copied = (work / "code" / "v2" / "deep" / "a 1.txt").stat()
    assert (copied.st_mtime, copied.st_mode & 0o060) == (1.0, 0o060)
    assert not (work / "code" / "v2" / "train.py").exists()


def test_half_a_copy_of_an_output_file_replaces_none(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be the newest one, and all else would be removed for it."""
    host_job = hosts.host_jobs["h0"]
    work = Path(host_job.work)
    for moment, name in enumerate(("v2/model.pt", "v1/model.pt")):
        (work / "code" / name).parent.mkdir(parents=True)
        (work / "code" / name).write_text(name)
        os.utime(work / "code" / name, (moment, moment))
    (work / ".results").write_bytes(b"./model.pt\0")
    full = tmp_path / "full" / "cp"  # as on a full disk
    full.parent.mkdir()
    full.write_text('#!/bin/sh\nfor last do :; done\necho half > "$last"\nexit 1\n')
    full.chmod(0o755)
    monkeypatch.setattr(HostJob, "make_results_readable", lambda job, container: False)
    container = TWO.nodes[0].container
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(full.parent), prepend=os.pathsep)
        host_job.renew_results("v2", container)
    assert [path.read_text() for path in sorted((work / "code" / "v2").iterdir())] == ["v2/model.pt"]
    host_job.renew_results("v2", container)
    assert (work / "code" / "v2" / "model.pt").read_text() == "v1/model.pt"


def test_outputs_are_fetched_where_no_node_is_any_more(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scale` has taken the node away, and left its outputs."""
    monkeypatch.setattr(Hosts, "observe", lambda hosts: look(hosts, h0=HostError("h0", "unreachable", "no route")))
    with pytest.raises(HostError, match="no route"):  # what it has is not known
        hosts.fetch(tmp_path / "into")
    left = Path(hosts.host_jobs["s0"].work) / "outputs" / "runs"
    left.mkdir(parents=True)
    (left / "3.pt").touch()
    assert hosts.fetch(tmp_path / "into") == {"files": 1, "hosts": 1}
    assert (tmp_path / "into" / "outputs" / "s0" / "runs" / "3.pt").exists()
