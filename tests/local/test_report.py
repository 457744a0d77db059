"""The report of a job that really failed and recovered: while it runs, when it has ended, and when it is down."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.tools.waiting import eventually

from .test_faults import RECOVERED


class Page(HTMLParser):
    """The text of a page, and the tags it is made of."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """All text, spaces between words as one."""
        return re.sub(r"\s+", " ", "".join(self.words))


def note_steps(jobs: Any, count: int) -> None:
    """Note the job's step a few times, as its supervisor does now and then."""
    from jobctl.jobspec.deploy.store.history import record_progress

    for _ in range(count):
        state = jobs.status()
        steps = [node["progress"] for node in state["nodes"] if node["progress"] is not None]
        if steps:
            record_progress(
                jobs.state / "jobs" / "counter" / "progress.jsonl", time.time(), state["generation"], max(steps)
            )


@pytest.fixture
def recovered(jobs: Any) -> Any:
    """A job that failed once at a step, and goes on in its second generation until `hold` is gone."""
    jobs.set(STEPS="60", DELAY="0.05")
    (jobs.directory / "hold").touch()
    (jobs.directory / "fail").write_text("7")
    script = jobs.directory / "counter.py"
    # Node 0 waits there: it might have made its last step by then, and would make none in the second generation.
    waits = 'while FIRST and step == 20 and node == "0": time.sleep(0.02)\n'
    text = script.read_text().replace(
        'if os.path.exists("fail") and node == "1":', f'{waits}    if step == 20 and node == "1" and FIRST:'
    )
    text = text.replace('"cannot go on"', '"cannot go on </pre><script>alert(1)</script>"')
    script.write_text(
        text.replace("import os, sys, time\n", 'import os, sys, time\nFIRST = os.environ["JOBCTL_GENERATION"] == "1"\n')
    )
    jobs.ok("up")
    return jobs


@pytest.mark.long
def test_the_story_of_a_job_that_recovered(recovered: Any) -> None:
    eventually(lambda: recovered.status()["generation"] == 2)
    eventually(lambda: all((node["progress"] or 0) >= 25 for node in recovered.status()["nodes"]))
    note_steps(recovered, 2)
    running = recovered.ok("report", "-o", "-")
    assert "counter running" in Page(running).text
    (recovered.directory / "hold").unlink()
    recovered.ok("wait", "--timeout", "60s")
    recovered.ok("down")
    done = recovered.run("report", "counter")
    written = recovered.directory / "counter-report.html"
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(
        r"wrote counter-report\.html: succeeded, [^,]+, 1 failure, [^,]+ lost, \d+(\.\d)? % effective training time\n",
        done.stderr,
    ), done.stderr
    page = Page(written.read_text())
    assert "counter succeeded" in page.text
    assert "torch · target local · 2 nodes" in page.text
    assert re.search(f"node 1: rank 1 exited with code 7{RECOVERED}", page.text)
    assert "cannot go on </pre><script>alert(1)</script>" in page.text
    assert "script" not in page.tags
    assert recovered.ok("report", "counter", "-o", "-").count("<svg") == 3
    kinds = [
        json.loads(line)["event"] for line in (recovered.state / "jobs/counter/events.jsonl").read_text().splitlines()
    ]
    assert kinds[0] == "up"


def test_a_job_that_ended_with_nobody_watching_is_told_by_its_end(jobs: Any) -> None:
    jobs.set(STEPS="3")
    jobs.ok("up", "--no-supervise")
    jobs.ok("wait", "--timeout", "60s")
    jobs.ok("down")
    assert "counter-report.html: succeeded, " in jobs.run("report", "counter").stderr
