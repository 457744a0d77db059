"""What others wrote: hosts, containers, launchers and jobctl of another version. It is read, or refused by name; nothing else."""

from __future__ import annotations

import copy
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobctl.jobspec.deploy.host import logs as hostlogs
from jobctl.jobspec.deploy.host import ports
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import check_answer
from jobctl.jobspec.deploy.host.watch import _rank
from jobctl.jobspec.deploy.logs.files import LogKey, Size
from jobctl.jobspec.deploy.model.control import (
    Control,
    JobResult,
    Ledger,
    Unreadable,
    begun_by_launchers,
    parse_control,
)
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.host_state import HostState, merge
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.model.observed import phase
from jobctl.jobspec.deploy.model.report_reader import parse_node
from jobctl.jobspec.deploy.model.tick import parse_tick
from jobctl.jobspec.deploy.model.untrusted import as_code, as_moment, as_number, as_text, parse_object
from jobctl.jobspec.deploy.store.control_files import read_control
from jobctl.jobspec.deploy.store.jobdir import JobDir, readable_jobs
from jobctl.jobspec.deploy.store.lock import Locked, read_holder
from jobctl.jobspec.deploy.store.processes import alive
from jobctl.jobspec.deploy.transport.base import Result as Done
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.operations.inspect.as_json import state_json as status_of
from jobctl.jobspec.plan.generation import AutonomyTerms, Generation, Member, RendezvousPoint
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.render.payload import control_json
from jobctl.jobspec.spec.hosts import parse_hosts
from tests.tools.examples import examples
from tests.tools.failures import failed

FAILURE = failed(
    node=0,
    host="h0",
    rank=3,
    kind="process",
    ran=2.5,
    alike=((3, 1),),
    log="node-0/logs/1/workerlog.0",
    tail=("oh", "no"),
)
MEMBERS = tuple(Member(n, n, ("trainer",), f"h{n}", f"10.0.0.{n}", 2, 2000 + n, (2100, 2101)) for n in range(2))
GENERATION = Generation(
    *("job", "run", 3, "run", 2.0, MEMBERS, RendezvousPoint("10.0.0.0", 23456, "run-3"), "/ck"),
    began=4.0,
    autonomy=AutonomyTerms(2, (Rule("oom", 137, "restart"),), (20000, 29999), (FAILURE,)),
)
CONTROL = json.loads(control_json(GENERATION))
LEDGER = json.loads(json.dumps(asdict(Ledger(4.0, "c0de", (FAILURE,), JobResult("failed", "it failed", 9.0)))))
PROCESS = {
    "rank": 3,
    "local_rank": 1,
    "state": "failed",
    "pid": 77,
    "exit_code": 1,
    "device": "cpu:1",
    "step": 7,
    "where": "f",
}
REPORT = {
    "version": 1, "node": 0, "role": "trainer", "state": "failed", "generation": 3, "exit_code": 1, "reason": "bad",
    "started_at": 3.0, "progress": 7, "processes": [PROCESS], "launcher": {"pid": 9, "start_ticks": 8}, "port": 2000,
    "failure": {"at": 5.0, "rank": 3, "exit_code": 1, "kind": "process", "log": "l", "tail": ["oh", "no"]},
    "process_restarts": 1, "restart_reason": "of it", "stacks_written": True, "artefact": "a", "order": CONTROL,
}  # fmt: skip
TICK = {
    "node": 0,
    "tick": "5",
    "generation": "run-3",
    "report": "1.1",
    "progress": 7,
    "echo": "me:1.0",
    "unheard": {"1": 2.5},
}
HOLDER = {"command": "up", "pid": 1, "start_ticks": 2, "user": "ann", "host": "desk", "since": 3.0}

FEW = examples(40)
ODD = (None, True, -1, 0, 2**70, 1e300, 0.5, "", "x", "²", "\ud800", "a\nb", [], [[]], [None], {}, {"a": []})


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where there is anything in plain data."""
    yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, whole: Any) -> Any:
    """Return a file of ours in which something is gone, or something else than it should be, or more than is known."""
    data = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(places(data), key=repr)))
        value = draw(st.sampled_from(ODD) | st.recursive(st.none() | st.text() | st.integers(), st.lists))
        value = copy.deepcopy(value)
        if not path:
            continue
        parent = data
        for key in path[:-1]:
            parent = parent[key]
        if isinstance(parent, dict) and draw(st.booleans()):
            del parent[path[-1]]
            parent[draw(st.sampled_from(("new", "version", "kind")))] = value
        else:
            parent[path[-1]] = value
    return data


def seen(control: Control, *reports: Any) -> HostState:
    return HostState((), control, dict(enumerate(reports)), directories=frozenset(range(len(reports))), there=True)


def shown(*on: HostState) -> Any:
    """Return what `status -o json` says of hosts."""
    observed = merge({f"h{i}": one for i, one in enumerate(on)}, {}, {}, supervised=False)
    phase(observed)
    handle = SimpleNamespace(plan=None, failures={}, job=SimpleNamespace(name="job"))
    return json.dumps(status_of(cast(Any, handle), observed)).encode()


WHOLE = parse_control(CONTROL, LEDGER)


def test_our_own_files_come_back_whole() -> None:
    assert Control(GENERATION, Ledger(4.0, "c0de", (FAILURE,), JobResult("failed", "it failed", 9.0))) == WHOLE
    assert begun_by_launchers(REPORT) == Control(GENERATION)


def test_those_of_an_older_version_too() -> None:
    old = {key: value for key, value in CONTROL.items() if key not in ("autonomy", "began", "host_timeout")}
    old["members"] = [{key: m[key] for key in m if key not in ("port", "ports")} for m in CONTROL["members"]]
    generation = parse_control(old, {"began": 1.0, "code": None, "failures": [], "result": None}).generation
    assert generation is not None
    assert (generation.began, generation.autonomy, generation.members[0].ports) == (0.0, None, ())


def test_what_launchers_may_do_is_read_by_its_earlier_name() -> None:
    old = {"alone" if key == "autonomy" else key: value for key, value in CONTROL.items()}
    assert parse_control(old, LEDGER) == WHOLE
    assert begun_by_launchers({"order": old}) == Control(GENERATION)
    assert parse_control({**CONTROL, "alone": None}, LEDGER) == WHOLE


def test_what_a_later_version_adds_is_left_out() -> None:
    assert parse_control({**CONTROL, "more": 1, "rendezvous": {**CONTROL["rendezvous"], "more": 1}}, LEDGER) == WHOLE


@pytest.mark.parametrize(
    ("control", "ledger", "why"),
    [
        ({**CONTROL, "version": 2}, None, "control.json: it has version 2, and this jobctl knows 1"),
        ({**CONTROL, "members": [{}]}, None, "control.json: `members.0.node`: Field required"),
        ({}, None, "control.json: `job`: Field required"),
        (
            None,
            {"began": "x"},
            "ledger.json: `began`: Input should be a valid number, unable to parse string as a number",
        ),
    ],
)
def test_what_cannot_be_read_is_named(control: Any, ledger: Any, why: str) -> None:
    with pytest.raises(Unreadable) as bad:
        parse_control(control, ledger)
    assert str(bad.value) == why


@FEW
@given(mutated(CONTROL), mutated(LEDGER), mutated(REPORT))
def test_a_run_of_another_version(control: Any, ledger: Any, report: Any) -> None:
    begun_by_launchers(report)
    shown(seen(WHOLE, report, REPORT), seen(WHOLE))
    try:
        found = parse_control(control, ledger)
    except Unreadable:
        return
    shown(seen(found, report), seen(WHOLE))


@FEW
@given(mutated(REPORT), st.none() | st.just(1))
def test_a_report_of_another_version(report: Any, launcher: int | None) -> None:
    node = parse_node(0, "trainer", "h0", report, launcher, None)
    assert (node.node, node.host) == (0, "h0")
    json.dumps(asdict(node), allow_nan=False, ensure_ascii=False).encode()  # as the ledger keeps it


def test_a_report_of_an_earlier_launcher() -> None:
    """It calls some fields by other names."""
    earlier = {"process_restarts": "again", "restart_reason": "because", "stacks_written": "mustered"}
    report = {earlier.get(name, name): value for name, value in REPORT.items()}
    assert parse_node(0, "trainer", "h0", report, 1, None) == parse_node(0, "trainer", "h0", REPORT, 1, None)


@FEW
@given(mutated(TICK) | st.sampled_from(ODD))
@example({**TICK, "unheard": [1]})
@example({**TICK, "echo": 5})
@example({**TICK, "unheard": {"x": 1.0, "1": "x"}})
def test_a_line_in_the_pipe(line: Any) -> None:
    """A launcher is answered or not; who writes anything else ends nothing."""
    detector = FailureDetector(lambda: 1.0, "me")
    detector.hear_host("h0")
    detector.expect(GENERATION)
    if (tick := parse_tick(json.dumps(line))) is not None:
        answer = detector.hear(tick, "h0")
        assert answer is None or "\n" not in answer
    detector.cleared()


@FEW
@given(mutated(HOLDER) | st.sampled_from(ODD))
def test_who_holds_a_lock(holder: Any) -> None:
    with pytest.raises(Locked) as taken:
        check_answer(f"taken 5 {json.dumps(holder)}", "h0", "/x/lock")
    assert "locked on h0 by" in str(taken.value)
    _rank(taken.value.holder)
    str(Locked(taken.value.holder))


@given(st.sampled_from(ODD), st.sampled_from(ODD))
def test_a_process_that_some_file_names(pid: Any, ticks: Any) -> None:
    assert not alive(pid, ticks)


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "5", "nul", "", "\xff", "1" * 10_000])
def test_what_is_no_json_object(text: str, tmp_path: Path) -> None:
    assert parse_object(text) is None
    (tmp_path / "lock").write_text(text)
    (tmp_path / "job.json").write_text(text)
    assert read_holder(tmp_path / "lock") == {}
    with pytest.raises(DeployError, match="no JSON object"):  # the job may be up
        JobDir(tmp_path).job_record()


def test_numbers_that_are_none() -> None:
    assert parse_object('{"a": NaN, "b": 1e999, "c": -Infinity, "d": 0.5}') == {
        "a": None,
        "b": None,
        "c": None,
        "d": 0.5,
    }


@pytest.mark.parametrize("value", [True, False, -1, 2**63, 1.0, "1", None, [1]])
def test_what_counts_nothing(value: Any) -> None:
    assert as_number(value) is None


@pytest.mark.parametrize("value", [True, -1.0, 1e11, "1", None])
def test_what_is_no_moment(value: Any) -> None:
    assert as_moment(value) is None


def test_codes_and_texts_are_taken_as_far_as_they_can_be() -> None:
    assert [as_code(value) for value in (0, -6, 3221225786, True, 2**40, "1")] == [0, -6, 3221225786, None, None, None]
    assert [as_text(value) for value in ("ä", "\ud800", 1)] == ["ä", "?", None]


KEPT = {
    "job": "job", "target": "ssh", "spec": "/j.yaml", "hosts": "/h.txt", "on": None, "exclude": None, "set": [], "cluster": None,
    "reach": {"hosts": [{"name": "h0", "slots": 2, "devices": [0, 1]}], "ssh_config": "/c", "accept_new": True},
    "owner": "me@here", "started_at": 1.0,
}  # fmt: skip


@FEW
@given(mutated(KEPT))
def test_what_another_version_has_kept_of_a_job(tmp_path_factory: pytest.TempPathFactory, kept: Any) -> None:
    root = tmp_path_factory.getbasetemp() / "kept"
    root.mkdir(exist_ok=True)
    (root / "job.json").write_text(json.dumps(kept))
    said = "cannot read "
    try:
        JobDir(root).job_record()
        JobDir(root).inventory()
    except DeployError as error:
        said = error.message
    assert said.startswith("cannot read ")


def test_a_job_of_another_version_hides_no_other(tmp_path: Path) -> None:
    for name, kept in (("mine", KEPT), ("theirs", {**KEPT, "target": "moon"})):
        (tmp_path / "jobs" / name).mkdir(parents=True)
        (tmp_path / "jobs" / name / "job.json").write_text(json.dumps(kept))
    assert [job.name for job in readable_jobs(tmp_path)] == ["mine"]


# Hosts.


class Saying(LocalTransport):
    """A host whose every answer is given."""

    def __init__(self, out: bytes, code: int = 0) -> None:
        super().__init__("h0")
        self.out, self.code = out, code

    def run(self, argv: Any, stdin: bytes = b"", *, timeout: float = 60.0) -> Done:
        return Done(self.code, self.out, b"")


def host_job(out: bytes, *, found: bool = True) -> HostJob:
    (host,) = parse_hosts("h0\n", "hosts.txt").hosts
    made = HostJob(host, Saying(out), "job", "ssh")
    if found:
        made.use_directories("/w/h0/job", "/w/h0/job")
    return made


def packed(**files: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            content = data if isinstance(data, bytes) else json.dumps(data).encode()
            member = tarfile.TarInfo(name.replace("__", "/") + ".json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_a_control_file_that_cannot_be_read_is_the_hosts_error() -> None:
    bad = host_job(packed(run__control={**CONTROL, "members": 5}, run__ledger=LEDGER))
    told = bad.observe(containers=())
    assert told.unreadable is not None
    assert told.unreadable.message == (
        "h0: cannot read /w/h0/job/run/control.json, written by another version of jobctl, or damaged: "
        "`members`: Input should be a valid tuple"
    )
    observed = merge({"h0": told, "h1": seen(WHOLE, REPORT)}, {}, {}, supervised=False)
    assert dict(observed.unreachable) == {"h0": told.unreadable.message}
    assert observed.control == WHOLE
    with pytest.raises(HostError) as error:
        bad.control()
    assert error.value.code == "unreadable"


def test_one_on_this_machine_too(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "control.json").write_text("{}")
    with pytest.raises(DeployError) as error:
        read_control(tmp_path)
    assert error.value.message.startswith(f"cannot read {tmp_path}/run/control.json, written by another version")


@pytest.mark.parametrize("out", [b"", b"Welcome!\n", b"a\nb\n", b"\xff\n"])
def test_a_shell_that_does_not_say_where_the_work_directory_is(out: bytes) -> None:
    with pytest.raises(HostError) as error:
        _ = host_job(out, found=False).work
    assert error.value.code == "command-failed"


@given(st.binary() | st.sampled_from([packed(run__control=5), packed(run__prepared={"version": []}), packed()[:700]]))
def test_any_answer_about_files(out: bytes) -> None:
    host_job(out).observe(containers=())


@given(st.binary())
def test_any_answer_about_ports(out: bytes) -> None:
    ports.used_ports(host_job(out))
    ports.used_ports(host_job(b"  0: 00000000:" + out + b" x 0A\n\n" + out))


def test_any_file_among_the_logs() -> None:
    out = (
        b"5 6 node-0/logs/1/workerlog.0\n7 8 node-0/logs/a\nb c/d\nx y z\n9 9 node-x/logs/1/workerlog.0\n1 1 \xff/\n2\n"
    )
    first = LogKey("h0", PurePosixPath("node-0/logs/1/workerlog.0"))
    assert hostlogs._list(host_job(out)) == {
        first: Size(5, 6.0),
        LogKey("h0", PurePosixPath("node-0/logs/a")): Size(7, 8.0),
    }


def test_any_labels() -> None:
    from jobctl.jobspec.deploy.host.containers import _seen

    for label in ODD:
        _seen(cast(Any, {"Id": "1", "Labels": label, "State": label}))
