"""The page of `jobctl ui` for a job that really runs, asked over loopback as a browser does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from .conftest import Jobs


class _Browser:
    """Asks a server, with a cookie once it has one."""

    def __init__(self, netloc: str) -> None:
        self.netloc, self.cookie = netloc, ""

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        connection.request("GET", path, headers={**({"Cookie": self.cookie} if self.cookie else {}), **headers})
        answer = connection.getresponse()
        found = answer.status, dict(answer.headers.items()), answer.read()
        connection.close()
        return found

    def data(self, path: str) -> Any:
        status, _, body = self.get(path)
        assert status == 200, body
        return json.loads(body)


def _refused_without_token(browser: _Browser) -> None:
    for path in ("/", "/page.js", "/api/jobs", "/report?job=counter", "/?token=wrong"):
        assert browser.get(path)[0] == 401, path
    assert browser.get("/api/jobs", Cookie=f"jobctl-ui-{browser.netloc.rpartition(':')[2]}=wrong")[0] == 401


def test_the_page_shows_a_job(jobs: Jobs, eventually: Callable[..., Any]) -> None:
    (jobs.directory / "hold").touch()
    jobs.ok("up")
    eventually(lambda: all(node["progress"] == 5 for node in jobs.status()["nodes"]))
    with jobs.popen("ui") as server:
        try:
            assert server.stderr is not None
            url = urlsplit(server.stderr.readline().split()[-1])
            browser = _Browser(url.netloc)
            _refused_without_token(browser)
            status, headers, _ = browser.get(f"/?{url.query}")
            assert (status, headers["Location"]) == (303, "/")
            assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
            browser.cookie = headers["Set-Cookie"].partition(";")[0]

            status, headers, body = browser.get("/")
            assert (status, b"<h2>Jobs</h2>" in body) == (200, True)
            assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
            assert browser.get("/", Host="rebound.example")[0] == 403
            assert browser.get("/api/other")[0] == 404

            (row,) = browser.data("/api/jobs")["jobs"]
            assert (row["job"], row["phase"], row["step"]) == ("counter", "running", 5)
            job = browser.data("/api/job?job=counter")
            assert [node["state"] for node in job["nodes"]] == ["running", "running"]
            assert job["story"]["events"]
            lines = browser.data("/api/logs?job=counter&node=1&text=step+4")["lines"]
            assert [(line["node"], line["line"]) for line in lines] == [(1, "step 4")]
            status, headers, _ = browser.get("/report?job=counter")
            assert (status, headers["Content-Security-Policy"].startswith("sandbox;")) == (200, True)
            for name in ("nobody", "..%2F..%2Fetc"):
                status, _, body = browser.get(f"/api/job?job={name}")
                assert (status, "error" in json.loads(body)) == (503, True)
        finally:
            server.terminate()
            assert server.wait(30) == 0
    done = jobs.run("ui", "--listen", "0.0.0.0:0")
    assert (done.returncode, "on loopback only" in done.stderr) == (2, True)
    jobs.ok("down")


def test_a_browser_shows_what_a_job_prints_as_text(
    jobs: Jobs, browse: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    """The page's script fills the page, and nothing that a job prints becomes part of the page."""
    code = "import time\nprint('<img src=x onerror=document.title=1><script>document.title=2</script>', flush=True)\n"
    (jobs.directory / "counter.py").write_text(code + "time.sleep(600)\n")
    jobs.ok("up")
    eventually(lambda: "<img src=x" in jobs.ok("logs"))
    with jobs.popen("ui") as server:
        try:
            assert server.stderr is not None
            done = browse(server.stderr.readline().split()[-1], "--virtual-time-budget=15000")
        finally:
            server.terminate()
    assert "<title>jobctl</title>" in done.stdout
    assert "node0 rank0 | &lt;img src=x onerror=document.title=1&gt;&lt;script&gt;" in done.stdout
    assert ">node 0 on localhost runs generation 1</td>" in done.stdout
    assert [line for line in done.stderr.splitlines() if "Uncaught" in line or "Refused to" in line] == []
