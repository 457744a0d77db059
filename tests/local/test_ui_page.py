"""The page of `jobctl ui` in Chromium, used as a person does: it follows a job, asks before it acts, and recovers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.tools.devtools import Page, browser
from tests.tools.ports import free_ports

from .conftest import Jobs, ui

pytestmark = pytest.mark.long  # a browser; what its server answers: test_ui.py

HARM = '<img src=x onerror="window.harmed=1"><script>window.harmed=2</script></pre></td>'


@pytest.fixture(scope="module")
def new_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Page]]:
    """Open a new page in a browser that runs for all tests."""
    with browser(tmp_path_factory.mktemp("profile")) as new:
        yield new


def _stays_at_home(page: Page, url: str) -> None:
    """The page asks nobody but its server, nobody gets the token, and its console has nothing to complain of."""
    page.run("1")
    token = urlsplit(url).fragment.partition("=")[2]
    assert {urlsplit(asked).netloc for asked in page.requests} == {urlsplit(url).netloc}
    assert [asked for asked in page.requests if token in urlsplit(asked)._replace(fragment="").geturl()] == []
    assert page.trouble == []


def test_it_follows_a_job_and_goes_on_after_its_server_was_killed(jobs: Jobs, new_page: Callable[[], Page]) -> None:
    jobs.set(STEPS="100000", DELAY="0.1")
    jobs.ok("up")
    page = new_page()
    with ui(jobs, "--listen", str(free_ports(1)[0])) as (url, server):
        page.open(url)
        page.shows("#jobs", "counter\\s+running")
        first = page.shows("#logs", r"node\d rank\d \| step \d+").splitlines()[-1]
        page.shows("#link", "^live$")
        assert page.run("location.hash") == ""
        step = int(page.shows("#nodes tr:first-child td:nth-child(4)", r"^\d+$"))
        page.shows("#nodes tr:first-child td:nth-child(4)", rf"^(?!{step}$)\d+$")
        page.shows("#logs", rf"(?s){first.replace('|', '[|]')}.*step")
        page.press("/", "/")
        page.write("step 7")
        page.shows("#logs", r"\A(node\d rank\d \| step 7\d*\s*)+\Z")
        assert page.text("#actions") == ""
        _stays_at_home(page, url)
        server.kill()
        server.wait()
        page.shows("#link", "no connection: has `jobctl ui` ended")
    with ui(jobs) as (again, _):
        assert again == url
        page.shows("#link", "^live$")
        page.run("location.reload()")
        page.shows("#link", "^live$")
        page.run("sessionStorage.setItem('token', 'another')")
        page.run("location.reload()")
        page.shows("#link", "a server with another token answers")
        page.run("sessionStorage.clear()")
        page.run("location.reload()")
        page.shows("#link", "open the address that `jobctl ui` has printed")
        assert page.text("#jobs") == ""
    jobs.ok("down")


def test_a_button_asks_and_a_keyboard_is_enough(jobs: Jobs, new_page: Callable[[], Page]) -> None:
    jobs.set(STEPS="100000", DELAY="0.1")
    jobs.ok("up")
    jobs.running()
    page = new_page()
    with ui(jobs, "--allow-actions") as (url, _):
        page.open(url)
        page.shows("#actions", "Stop")
        page.run("document.querySelector('#jobs button').focus()")
        for _ in range(2):
            page.press("Tab")
        assert page.run("document.activeElement.dataset.action") == "stop"
        page.press("Enter")
        page.shows("#words", "Job `counter` is running. All of its processes get SIGTERM and 5 s to save")
        assert page.text("#question") == "Stop job counter?"
        assert page.run("document.activeElement.id") == "no"  # whoever presses Enter twice has done nothing
        page.press("Enter")
        assert page.run("document.querySelector('#sure').open") is False
        assert jobs.status()["phase"] == "running"
        page.press("Enter")
        page.shows("#words", "SIGTERM")
        page.press("Tab")
        page.press("Enter")
        page.shows("#done", "stop: done job `counter` is stopped")
        page.shows("#jobs", "stopped")
        page.click("[data-action=drill]")
        page.shows("#words", "job `counter` is stopped: a drill needs one that runs")
        assert page.run("document.querySelector('#yes').disabled") is True
        page.press("Escape")
        page.shows("#link", "^live$")
        _stays_at_home(page, url)
    jobs.ok("down")


def _history(state: Path, name: str = "hung") -> None:
    """Leave the history of a job that hung, whose every text tries to be more than text."""
    begin = 1_800_000_000.0
    events: list[dict[str, Any]] = [
        {"event": "up", "message": f"up {HARM}", "framework": "torch", "target": "local"},
        {"event": "generation", "message": HARM, "generation": 1, "members": [0, 1], "hosts": {}, "cause": HARM},
        {"event": "failure", "message": f"hang {HARM}", "node": 1, "log": HARM, "tail": [HARM], "generation": 1},
        {"event": "down", "message": "down", "phase": "failed"},
    ]
    events[2]["stacks"] = [{"who": ["node1 rank1", HARM], "more": 2, "stack": ["all_reduce (dist.py:7)", HARM]}]
    job = state / "jobs" / name
    log = job / "history" / "then" / "node-1" / "logs" / "1"
    log.mkdir(parents=True)
    (job / "events.jsonl").write_text(
        "".join(f"{json.dumps({'time': begin + at, **event})}\n" for at, event in enumerate(events))
    )
    (log / "workerlog.0").write_text(f"{HARM}\n{HARM}\n")
    processes = job / "history" / "then" / "node-1" / "processes" / "1"
    processes.mkdir(parents=True)
    (processes / "0.json").write_text('{"rank": 1}')


def test_stacks_of_a_hang_are_shown_and_text_stays_text(jobs: Jobs, new_page: Callable[[], Page]) -> None:
    _history(jobs.state)
    page = new_page()
    with ui(jobs) as (url, _):
        page.open(url)
        page.shows("#jobs", "hung\\s+failed, down")
        shown = page.shows("#failures", "hang <img")
        assert f"where node1 rank1, {HARM} and 2 more stood" in shown
        assert f"all_reduce (dist.py:7)\n{HARM}" in shown
        page.shows("#events", "hang <img")
        assert f"node1 rank1 | {HARM}" in page.shows("#logs", "node1")
        page.click("#report summary")
        page.run("document.querySelector('#frame').scrollIntoView()")
        assert page.run("window.harmed ?? null") is None
        assert page.run("document.querySelectorAll('main img, main script').length") == 0
        _stays_at_home(page, url)


def test_a_text_is_found_in_all_of_the_logs(jobs: Jobs, new_page: Callable[[], Page]) -> None:
    _history(jobs.state)
    (log,) = (jobs.state / "jobs").rglob("workerlog.0")
    log.write_text("a needle\n" + "hay\n" * 30_000)
    page = new_page()
    with ui(jobs) as (url, _):
        page.open(url)
        assert "needle" not in page.shows("#logs", "hay")
        page.press("/")
        page.run("document.activeElement.value = 'needle'")
        page.run("document.activeElement.dispatchEvent(new Event('input', {bubbles: true}))")
        page.shows("#logs", "^node1 rank1 \\| a needle$")
        page.shows("#trouble", "^$")  # no longer `searching`


def test_another_job_is_chosen_with_the_keyboard(jobs: Jobs, new_page: Callable[[], Page]) -> None:
    for name in ("first", "second"):
        _history(jobs.state, name)
    shutil.rmtree(jobs.state / "jobs" / "second" / "history")
    page = new_page()
    with ui(jobs) as (url, _):
        page.open(url)
        page.shows("#name", "^first$")
        page.shows("#logs", "node1")
        page.run("document.querySelector('#jobs button').focus()")
        page.press("ArrowDown")
        page.press("Enter")
        page.shows("#name", "^second$")
        page.shows("#trouble", "job `second` has no logs here")
        assert page.text("#logs") == ""
        page.shows("#link", "^live$")
        assert page.run("location.hash") == "#job=second"
        page.run("location.reload()")
        page.shows("#name", "^second$")
        page.run("history.back()")
        page.shows("#name", "^first$")
        _stays_at_home(page, url)


def test_it_fits_a_phone_and_the_dark(jobs: Jobs, new_page: Callable[[], Page]) -> None:
    _history(jobs.state)
    page = new_page()
    with ui(jobs) as (url, _):
        page.size(400, 900)
        page.open(url)
        page.shows("#failures", "hang")
        assert page.run("document.documentElement.scrollWidth") <= 400
        light = page.run("getComputedStyle(document.body).backgroundColor")
        page.dark()
        dark = page.run("getComputedStyle(document.body).backgroundColor")
        assert (light, dark) == ("rgb(245, 246, 248)", "rgb(18, 22, 28)")
