"""The parts of `jobctl ui` that need neither a job nor a browser: what is kept, for how long, and how much of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.model.log_lines import Line
from jobctl.jobspec.deploy.model.sample import DeviceSample
from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.errors import NotYours
from jobctl.jobspec.operations.inspect.as_json import iso
from jobctl.jobspec.operations.inspect.listing import MAX_LOOKS, KnownJob, KnownJobs
from jobctl.jobspec.operations.inspect.logs import Choice
from jobctl.jobspec.operations.inspect.refreshed import Refreshed
from jobctl.jobspec.operations.inspect.top import JobLoad
from jobctl.jobspec.operations.lifecycle.base import Stopped
from jobctl.jobspec.operations.serve import ui_actions, ui_data, ui_logs
from jobctl.jobspec.operations.serve.ui_access import PageAccess
from jobctl.jobspec.operations.serve.ui_actions import PageActions, Wish
from jobctl.jobspec.operations.serve.ui_data import UiData
from jobctl.jobspec.operations.serve.ui_logs import MAX_PAGE_LINES, LogSearch, LogWindow, LogWindows
from jobctl.jobspec.operations.serve.ui_server import TICKET_LIFE, TICKETS, Tickets
from jobctl.jobspec.operations.serve.ui_view import POINTS, Samples, rate_of
from tests.tools.waiting import PATIENCE, promptly


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_signature_counts_for_one_request_to_one_server() -> None:
    access, host = PageAccess("token"), "127.0.0.1:9187"
    asked = (host, "POST", "/api/act", "{}")
    signature = access.signature(*asked)
    assert access.is_signed(signature, *asked)
    others = (("localhost:9187", *asked[1:]), (host, "GET", *asked[2:]), (host, "POST", "/api/ask", "{}"))
    for other in (*others, (*asked[:3], '{"job": "x"}')):
        assert not access.is_signed(signature, *other)
    assert not PageAccess("token").is_signed(signature, *asked)  # a later run of the server
    assert not access.is_signed("", *asked)
    assert not access.is_signed("ä", *asked)
    assert access.proof(host, "1") != access.proof("127.0.0.1:9188", "1")


def test_a_ticket_opens_one_report_once_and_soon() -> None:
    clock = _Clock()
    tickets = Tickets(clock)
    first = tickets.issue("resnet")
    assert [tickets.take(first), tickets.take(first), tickets.take("")] == ["resnet", None, None]
    late = tickets.issue("resnet")
    clock.now += TICKET_LIFE
    assert tickets.take(late) is None
    many = [tickets.issue(str(number)) for number in range(TICKETS + 1)]
    assert [tickets.take(many[0]), tickets.take(many[1])] == [None, "1"]


class _Reader:
    """Brings lines that a test writes."""

    interval, problems = 0.1, {}

    def __init__(self) -> None:
        self.new: list[str] = []
        self.count = 0

    def nodes(self) -> set[int]:
        return set()

    def generations(self) -> set[int]:
        return set()

    def lines(self, *, final: bool = False) -> Iterator[Line]:
        for text in self.new:
            self.count += 1
            yield Line(float(self.count), 0, 0, 1, "workerlog.0", text.encode())
        self.new = []


def _texts(found: dict[str, Any]) -> list[str]:
    return [line["line"] for line in found["lines"]]


def test_a_page_gets_only_the_lines_that_it_lacks() -> None:
    reader = _Reader()
    whole = _Reader()
    windows = LogWindows(lambda choice: reader, lambda choice: whole)
    reader.new = ["one", "two", "three"]
    first = windows.read(Choice(), "", "")
    assert (_texts(first), first["more"]) == (["one", "two", "three"], False)
    reader.new = ["four"]
    second = windows.read(Choice(), "", first["at"])
    assert (_texts(second), second["more"]) == (["four"], True)
    whole.new = ["to begin with", "one", "two", "three"]
    searched = windows.read(Choice(), "t", "")
    assert _texts(searched) == ["to begin with", "two", "three"]  # in what the window does not have, too
    whole.new = ["five", "ten"]
    assert _texts(windows.read(Choice(), "t", searched["at"])) == ["ten"]
    assert _texts(windows.read(Choice(), "", "of another server")) == ["one", "two", "three", "four"]


def test_a_page_gets_all_lines_of_a_window_that_is_another_than_it_had() -> None:
    """As when the server, or the job, was started again since, or the page was asleep for minutes."""
    reader = _Reader()
    reader.new = ["of a window before", "one"]
    before = LogWindows(lambda choice: reader, lambda choice: reader).read(Choice(), "", "")
    reader.new = ["one", "two", "three"]
    after = LogWindows(lambda choice: reader, lambda choice: reader).read(Choice(), "", before["at"])
    assert (_texts(after), after["more"]) == (["one", "two", "three"], False)


def test_lines_are_named_as_jobctl_logs_names_them() -> None:
    """A server has a number of its own, which is no rank of a trainer."""
    logs = (("workerlog.3", 3), ("serverlog.0", 0), ("stack.1", 1), ("launcher.log", None), ("setup.log", None))
    lines = [Line(1.0, 0, rank, 1, log, b"x") for log, rank in logs]
    reader = cast(Any, SimpleNamespace(problems={}, lines=lambda: lines))
    found = LogWindows(lambda choice: reader, lambda choice: reader).read(Choice(), "", "")
    assert [line["writer"] for line in found["lines"]] == ["rank3", "server0", "rank1", "launcher", "setup"]


def test_windows_of_logs_are_few() -> None:
    opened: list[int | None] = []

    def open_(choice: Choice) -> _Reader:
        opened.append(choice.node)
        return _Reader()

    windows = LogWindows(open_, open_)
    for node in (0, 1, 2, 3, 0, 4, 1):  # 1 was asked for longest ago when 4 came
        windows.read(Choice(node), "", "")
    assert opened == [0, 1, 2, 3, 4, 1]


def test_a_window_keeps_a_bounded_part_of_a_million_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_logs, "MAX_LOG_LINES", 50)
    monkeypatch.setattr(ui_logs, "MAX_LOG_BYTES", 1000)
    reader = _Reader()
    window = LogWindow(reader)
    reader.new = [str(number) for number in range(1000)]
    window.read()
    assert (len(window._lines), _texts(window.after(0))[-1]) == (50, "999")
    reader.new = ["x" * 600, "y" * 600, "z" * 5000]
    window.read()
    assert [line.text[:1] for _, line in window._lines] == [b"z"]
    (shown,) = _texts(window.after(0))
    assert shown == "z" * 4096 + "… (904 more bytes)"


def test_a_search_of_a_million_lines_keeps_few_and_goes_on_with_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ui_logs, "SEARCH", 2.0)
    clock, reader = _Clock(), _Reader()
    reader.new = [f"line {number}" for number in range(5 * 256)]

    def tick() -> float:
        clock.now += 1.0  # a second for each 256 lines
        return clock.now

    search = LogSearch(reader, "5", tick)
    search.read()
    first = search.after(0)
    assert first["searched"] == iso(2 * 256)
    assert _texts(first)[-1] == "line 511"
    search.read()
    search.read()
    rest = search.after(first["last"])
    assert (rest["searched"], _texts(rest)[0], _texts(rest)[-1]) == (None, "line 512", "line 1275")
    reader.new = ["5"] * 2 * MAX_PAGE_LINES
    for _ in range(8):
        search.read()
    assert len(search.after(0)["lines"]) == MAX_PAGE_LINES


def _load(*uses: float | None) -> JobLoad:
    devices = tuple(DeviceSample(f"gpu:{n}", None, use, 40.0, 80.0) for n, use in enumerate(uses))
    node = SimpleNamespace(node=SimpleNamespace(node=3), devices=devices)
    return cast(JobLoad, SimpleNamespace(nodes=(node,)))


def test_samples_are_numbered_and_the_last_ones_kept() -> None:
    samples = Samples()
    for number in range(POINTS + 5):
        samples.add(float(number), _load(0.5, None))
    assert len(samples.after(0)) == POINTS
    assert samples.after(POINTS + 4) == [{"number": POINTS + 5, "at": 124.0, "busy": {"3": [[50, 50], [None, 50]]}}]
    assert len(samples.after(POINTS + 6)) == POINTS  # a number of an earlier server


def test_a_job_that_stands_still_or_has_ended_makes_no_steps() -> None:
    steps = [StepProgress(at, 2, int(2 * at)) for at in (100.0, 105.0, 110.0)]
    runs = {"phase": "running", "generation": 2}
    assert (rate_of(runs, steps, 112.0), rate_of(runs, steps, 3700.0)) == (2.0, 0.0)
    assert [rate_of({**runs, "phase": phase}, steps, 112.0) for phase in ("restarting", "succeeded")] == [None, None]


def test_a_value_is_found_out_again_in_the_background() -> None:
    clock = _Clock()
    found: list[int] = []
    begin, end = threading.Semaphore(0), threading.Semaphore(0)

    def make() -> int:
        begin.acquire()
        found.append(len(found) + 1)
        clock.now += 2.0  # that it takes
        end.release()
        if len(found) == 3:
            raise NotYours("not yours")
        return len(found)

    value = Refreshed(make, clock, share=10)
    assert value.get(0.0) == (None, 0.0)
    begin.release()
    end.acquire()
    assert value.get(60.0) == (1, 0.0)
    clock.now += 19.0
    assert value.get(60.0) == (1, 19.0)  # it counts for ten times as long as it took
    clock.now += 1.0
    assert [value.get(0.0), value.get(0.0)] == [(1, 20.0), (1, 20.0)]
    begin.release()
    end.acquire()
    assert value.get(60.0) == (2, 0.0)
    clock.now += 20.0
    begin.release()
    with pytest.raises(NotYours):
        value.get(60.0)
    assert found == [1, 2, 3]


class _Slow(KnownJobs):
    """Two jobs, and the hosts of one do not answer yet."""

    def __init__(self, state: Path) -> None:
        super().__init__()
        self.state, self.answer = state, threading.Event()

    def directories(self) -> list[JobDir]:
        return [JobDir(self.state / "jobs" / name) for name in ("quick", "slow")]

    def look(self, directory: JobDir) -> KnownJob:
        if directory.name == "slow":
            self.answer.wait(30)  # seconds until it is seen after all, which fails the test
        return KnownJob(directory.name, error=NotYours(f"{directory.name} was seen"))


def test_a_job_whose_hosts_are_slow_keeps_no_other_from_being_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(ui_data, "SLOW_JOBS_TIMEOUT", 0.2)
    known = _Slow(tmp_path)
    data = UiData(known)

    def reasons() -> list[str]:
        return [row["reason"] for row in data.jobs()["jobs"]]

    promptly(lambda: reasons() == ["quick was seen", "its hosts have not answered yet"])
    known.answer.set()
    monkeypatch.setattr(ui_data, "SLOW_JOBS_TIMEOUT", PATIENCE)
    assert reasons() == ["quick was seen", "slow was seen"]
    data.close()


class _Silent(KnownJobs):
    """More jobs than are looked at side by side; their hosts do not answer."""

    def __init__(self, state: Path) -> None:
        super().__init__()
        self.state, self.answer = state, threading.Event()
        self.looks: list[str] = []

    def directories(self) -> list[JobDir]:
        return [JobDir(self.state / "jobs" / f"job-{number}") for number in range(MAX_LOOKS + 1)]

    def look(self, directory: JobDir) -> KnownJob:
        self.looks.append(directory.name)
        assert self.answer.wait(PATIENCE)
        return KnownJob(directory.name, error=NotYours("seen"))


def test_a_page_looks_at_no_more_jobs_at_once_than_a_host_lets_log_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(ui_data, "SLOW_JOBS_TIMEOUT", 0.2)
    known = _Silent(tmp_path)
    data = UiData(known)

    def are_looked_at() -> bool:
        data.jobs()
        return len(known.looks) >= MAX_LOOKS

    promptly(are_looked_at)
    data.jobs()
    assert len(known.looks) == MAX_LOOKS
    known.answer.set()
    data.close()


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], threading.Event]]:
    """What was done with jobs, which takes until the event is set."""
    done: list[str] = []
    go_on = threading.Event()

    def perform(wish: Wish, listener: object) -> str:
        assert go_on.wait(60)
        done.append(wish.verb)
        if wish.verb == "drill":
            raise ZeroDivisionError("oops")
        return "well"

    monkeypatch.setattr(ui_actions, "_perform", perform)
    yield done, go_on
    go_on.set()


def _states(actions: PageActions, job: str) -> Sequence[tuple[str, str, str]]:
    return [(one["action"], one["state"], one["text"]) for one in actions.of(job)]


def test_one_action_at_a_time_for_a_job(tmp_path: Path, performed: tuple[list[str], threading.Event]) -> None:
    done, go_on = performed
    actions = PageActions(_Clock())
    one, other = (JobDir(tmp_path / "jobs" / name) for name in ("one", "other"))
    actions.begin(Wish(one, "restart"))
    actions.begin(Wish(other, "stop"))
    with pytest.raises(NotYours, match="job `one` is locked by this page's `restart` for 0 s"):
        actions.begin(Wish(one, "stop"))
    assert actions.at_work() == ["`restart` of job `one`", "`stop` of job `other`"]
    go_on.set()
    actions.wait()
    assert sorted(done) == ["restart", "stop"]
    actions.begin(Wish(one, "drill"))
    actions.wait()
    assert _states(actions, "one") == [("drill", "failed", "ZeroDivisionError: oops"), ("restart", "done", "well")]
    assert actions.at_work() == []


def test_a_job_that_has_not_stopped_in_time_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def running(wish: Wish) -> Iterator[Any]:
        yield SimpleNamespace(stop=lambda request, reporter: Stopped("degraded", left=("node 1 on gpu02",)))

    monkeypatch.setattr(ui_actions, "_running", running)
    actions = PageActions(_Clock())
    actions.begin(Wish(JobDir(tmp_path / "jobs" / "one"), "stop"))
    actions.wait()
    ((verb, state, text),) = _states(actions, "one")
    assert (verb, state) == ("stop", "failed")
    assert text.startswith("job `one` is told to stop, but node 1 on gpu02 has not ended in time: `jobctl status one`")
