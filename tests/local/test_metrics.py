"""Metrics of a job that really runs: printed, served over HTTP, and scraped by a real Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.tools.ports import free_ports

from .conftest import Jobs


def values(text: str) -> dict[str, float]:
    """Return the values of the job's own metrics by name, of a stateset the label that is set."""
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("job") == "counter" and (family.type != "stateset" or sample.value):
                found[sample.name] = sample.labels.get(family.name, sample.value)
    return found


@contextmanager
def serving(jobs: Jobs) -> Iterator[str]:
    """Serve on a free port of loopback, and return the address."""
    with jobs.popen("metrics", "--listen", "0") as server:
        try:
            assert server.stderr is not None
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()
            assert server.wait(30) == 0


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        text: str = answer.read().decode()
        return text


def test_metrics_are_printed_and_served(jobs: Jobs, eventually: Callable[..., Any]) -> None:
    assert jobs.ok("metrics") == "# EOF\n"
    (jobs.directory / "hold").touch()
    jobs.ok("up")
    eventually(lambda: all(node["progress"] == 5 for node in jobs.status()["nodes"]))
    found = values(jobs.ok("metrics", "counter"))
    known = ("jobctl_phase", "jobctl_generation", "jobctl_progress_steps", "jobctl_supervised", "jobctl_observed")
    assert {name: found[name] for name in known} == dict(zip(known, ("running", 1, 5, 1, 1), strict=True))
    assert 0 <= found["jobctl_goodput_ratio"] <= 1
    with serving(jobs) as url:
        assert url.startswith("http://127.0.0.1:")
        assert values(get(url))["jobctl_phase"] == "running"
        with pytest.raises(HTTPError, match="404"):
            get(url.replace("/metrics", "/etc/passwd"))
        jobs.ok("down")
        eventually(lambda: values(get(url)) == {})  # it goes on, and shows what is up next
    done = jobs.run("metrics", "counter2")
    assert (done.returncode, "no job `counter2` is known here" in done.stderr) == (2, True)
    done = jobs.run("metrics", "--listen", "nowhere")
    assert (done.returncode, "is not an address to listen on" in done.stderr) == (2, True)


def test_one_sample_of_this_machine_serves_all_of_its_jobs(jobs: Jobs, tmp_path: Path) -> None:
    """The tools of drivers take up to half a second each time."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\n")
    (tools / "nvidia-smi").chmod(0o755)
    (jobs.directory / "hold").touch()
    spec = (jobs.directory / "job.yaml").read_text()
    (jobs.directory / "other.yaml").write_text(spec.replace("counter\n", "other\n").replace("/checkpoints", "/others"))
    for spec in ("job.yaml", "other.yaml"):
        jobs.ok("up", spec)
    jobs.environ["PATH"] = f"{tools}:{jobs.environ['PATH']}"
    told = jobs.ok("metrics")
    assert [f'jobctl_observed{{job="{job}"' in told for job in ("counter", "other")] == [True, True], told
    assert "jobctl_host_memory_bytes{" in told
    assert (tmp_path / "asked").read_text() == "asked\n"
    jobs.ok("down", "other.yaml")


CONFIG = """\
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: jobctl, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}]
"""


def installed(name: str) -> str:
    """Return where a program of Prometheus is; skip or fail the test where there is none."""
    program = shutil.which(name)
    if program is None:
        reason = f"{name} is not installed (apt-get install prometheus)"
        pytest.fail(reason) if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip(reason)
    return str(program)


@pytest.mark.long
def test_promtool_finds_nothing_wrong_with_the_older_format(jobs: Jobs) -> None:
    promtool = installed("promtool")
    (jobs.directory / "hold").touch()
    jobs.ok("up")
    with serving(jobs) as url:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": "text/plain"}), timeout=60)
        body = answer.read()
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'jobctl_phase{job="counter"' in body
    done = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.long
def test_a_real_prometheus_scrapes_them(jobs: Jobs, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    program = installed("prometheus")
    (jobs.directory / "hold").touch()
    jobs.ok("up")
    with serving(jobs) as url:
        (tmp_path / "prometheus.yml").write_text(CONFIG.format(target=url.split("/")[2]))
        (port,) = free_ports(1)
        argv = [
            program,
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (
            (tmp_path / "log").open("w") as log,
            subprocess.Popen(argv, cwd=tmp_path, stderr=log, stdout=log) as server,
        ):
            try:
                api = f"http://127.0.0.1:{port}/api/v1/query?query="

                def ask(query: str) -> list[Any]:
                    try:
                        with urllib.request.urlopen(api + query, timeout=10) as answer:
                            return list(json.load(answer)["data"]["result"])
                    except OSError:
                        return []

                (phase,) = eventually(lambda: ask("jobctl_phase==1"))
                assert (phase["metric"]["job"], phase["metric"]["jobctl_phase"]) == ("counter", "running")
                assert eventually(lambda: ask("up"))[0]["value"][1] == "1"
                assert eventually(lambda: ask("jobctl_host_cpu_seconds_total"))
            finally:
                server.terminate()
