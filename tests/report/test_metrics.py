"""Metrics of jobs in the OpenMetrics format, read back by the parser of Prometheus' own client library."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_fd_to_metric_families

from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, ObservedProcess
from jobctl.jobspec.deploy.model.sample import DeviceSample, HostSample
from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
from jobctl.jobspec.report.metrics import JobMetrics, metrics_text, step_rate
from jobctl.jobspec.report.openmetrics import Family, exposition, labelled, plain, wants_plain
from tests.report.stories import rich
from tests.tools.failures import failed

NOW = 1000.0
MEMBERS = tuple(Member(n, n, ("trainer",), f"h{n}", f"10.0.0.{n}", 1) for n in range(2))
GENERATION = Generation("demo", "demo-1", 3, "run", 0.0, MEMBERS, RendezvousPoint("10.0.0.0", 20000, "demo-3"), None)
FAILURE = failed(at=NOW - 50, exit_code=137, kind="signal")
STEPS = tuple(StepProgress(at, 3, int(step)) for at, step in ((900.0, 0), (945.0, 450), (975.0, 750), (995.0, 950)))


def observed() -> Observed:
    failures = (FAILURE, replace(FAILURE, generation=2), replace(FAILURE, generation=2, kind="hang"))
    process = ObservedProcess(0, 0, "running", 71, None, "gpu:0")
    first = ObservedNode(0, "trainer", "h0", "running", launcher=1, generation=3, progress=950, processes=(process,))
    second = ObservedNode(1, "trainer", "h1", "failed", launcher=1, generation=3, progress=940)
    return Observed(Control(GENERATION, Ledger(900.0, failures=failures)), (first, second), True)


def known(**how: Any) -> JobMetrics:
    device = DeviceSample("gpu:0", 'a "GPU" \\', 0.97, 5.0, 10.0, 689.5, 64.0, 3.0, 1.0)
    host = HostSample({"user": 12.0, "idle": 980.25}, 1024.0, 512.0, 1.25, (device,))
    made = JobMetrics("demo", "torch", "compose", NOW, observed(), "running", rich(), STEPS, {"h0": host})
    return replace(made, **how)


def parsed(text: str) -> dict[str, dict[str, float]]:
    """Return value by labels by name, as the parser reads them; it refuses what is against the standard."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_all_that_is_known_of_a_job() -> None:
    found = parsed(metrics_text([known()]))
    assert found["jobctl_job_info"] == {"framework=torch,job=demo,target=compose": 1}
    phases = {labels for labels, value in found["jobctl_phase"].items() if value}
    assert phases == {"job=demo,jobctl_phase=running"}
    assert len(found["jobctl_phase"]) == 9
    assert found["jobctl_observed"] == found["jobctl_supervised"] == {"job=demo": 1}
    assert found["jobctl_generation"] == {"job=demo": 3}
    assert found["jobctl_nodes"] == {"job=demo,state=running": 1, "job=demo,state=failed": 1}
    assert found["jobctl_progress_steps"] == {"job=demo": 950}
    assert found["jobctl_step_rate"] == {"job=demo": 10}
    assert found["jobctl_restarts_total"] == {"cause=signal,job=demo": 2, "cause=hang,job=demo": 1}
    story = rich()
    assert found["jobctl_goodput_ratio"] == {"job=demo": pytest.approx(story.ratio)}
    assert found["jobctl_lost_seconds"] == {"job=demo": pytest.approx(story.lost)}
    assert sum(found["jobctl_run_time_seconds"].values()) == pytest.approx(story.end - story.begin)
    assert found["jobctl_node_up"] == {
        "host=h0,job=demo,node=0,role=trainer": 1,
        "host=h1,job=demo,node=1,role=trainer": 0,
    }
    assert found["jobctl_node_progress_steps"]["host=h1,job=demo,node=1"] == 940
    assert found["jobctl_process_up"] == {"device=gpu:0,host=h0,job=demo,node=0,rank=0": 1}
    assert found["jobctl_host_cpu_seconds_total"] == {"host=h0,mode=user": 12, "host=h0,mode=idle": 980.25}
    assert found["jobctl_host_memory_available_bytes"] == {"host=h0": 512}
    device = 'device=gpu:0,host=h0,name=a "GPU" \\'
    assert found["jobctl_device_utilization_ratio"] == {device: 0.97}
    assert found["jobctl_device_power_watts"] == {device: 689.5}
    errors = 'device=gpu:0,host=h0,kind={},name=a "GPU" \\'
    assert found["jobctl_device_ecc_errors_total"] == {
        errors.format("corrected"): 3,
        errors.format("uncorrected"): 1,
    }


def test_a_job_that_nobody_can_look_at_is_unknown() -> None:
    lost = JobMetrics("demo", None, "compose", NOW, None, "unknown")
    found = parsed(metrics_text([lost]))
    assert found["jobctl_observed"] == {"job=demo": 0}
    assert found["jobctl_phase"]["job=demo,jobctl_phase=unknown"] == 1
    assert set(found) == {"jobctl_observed", "jobctl_job_info", "jobctl_phase"}


def test_two_jobs_on_one_host_have_its_figures_once() -> None:
    found = parsed(metrics_text([known(), known(job="other")]))
    assert len(found["jobctl_generation"]) == 2
    assert len(found["jobctl_host_load"]) == 1


def test_no_job_is_a_valid_answer() -> None:
    assert metrics_text([]) == "# EOF\n"
    assert parsed("# EOF\n") == {}


def test_labels_are_escaped_and_numbers_are_exact() -> None:
    family = Family("jobctl_x_bytes", "gauge", 'what\n"it" \\ is', "bytes")
    family.add(2**53 + 0.0, labelled(a='b\n"c"\\\ud800', b=None))
    family.add(None, labelled(a="d"))
    family.add(0.1, labelled(a="e"))
    family.add(5, labelled(a="e"))
    assert exposition([family]) == (
        "# TYPE jobctl_x_bytes gauge\n# UNIT jobctl_x_bytes bytes\n"
        '# HELP jobctl_x_bytes what\\n\\"it\\" \\\\ is\n'
        'jobctl_x_bytes{a="b\\n\\"c\\"\\\\?"} 9007199254740992.0\njobctl_x_bytes{a="e"} 0.1\n# EOF\n'
    )
    assert parsed(exposition([family]))["jobctl_x_bytes"] == {'a=b\n"c"\\?': 2**53, "a=e": 0.1}


def test_the_older_format_has_the_same_samples() -> None:
    text = metrics_text([known()])
    older = plain(text)
    samples = {line for line in text.splitlines() if not line.startswith("#")}
    assert {line for line in older.splitlines() if not line.startswith("#")} == samples
    families = {family.name: family for family in text_fd_to_metric_families(StringIO(older))}
    assert sum(len(family.samples) for family in families.values()) == len(samples)
    assert {families[name].type for name in ("jobctl_phase", "jobctl_job_info", "jobctl_host_load")} == {"gauge"}
    assert families["jobctl_restarts"].type == "counter"
    assert families["jobctl_restarts"].documentation == "Failures since the last `up` or `restart`, by cause."
    assert not {line.split()[1] for line in older.splitlines() if line.startswith("#")} - {"TYPE", "HELP"}


@pytest.mark.parametrize(
    ("accept", "older"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", True),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", False),
    ],
)
def test_who_gets_the_older_format(accept: str, older: bool) -> None:
    assert wants_plain(accept) is older


@pytest.mark.parametrize(
    ("progress", "now", "rate"),
    [
        ((), NOW, None),
        (STEPS[:1], NOW, None),
        (STEPS, NOW, 10.0),
        (STEPS, 1035.0, 500 / 90),  # it has stood still for a while
        (STEPS, 1200.0, 0.0),
        ((*STEPS, StepProgress(1001.0, 4, 700)), NOW, None),  # of the next generation, which has just begun
    ],
)
def test_step_rate(progress: tuple[StepProgress, ...], now: float, rate: float | None) -> None:
    generation = progress[-1].generation if progress else 3
    assert step_rate(progress, generation, now) == (rate if rate is None else pytest.approx(rate))


def test_a_job_that_does_not_run_makes_no_steps() -> None:
    assert parsed(metrics_text([known(phase="stopped")]))["jobctl_step_rate"] == {"job=demo": 0}


DOCS = Path(__file__).parents[2] / "docs"


def names() -> set[str]:
    """Return the names of all metrics, as samples have them."""
    found = set(parsed(metrics_text([known()])))
    assert len(found) == 25
    return found


def test_the_dashboard_asks_only_for_metrics_that_there_are() -> None:
    board = json.loads((DOCS / "grafana.json").read_text())
    asked = {target["expr"] for panel in board["panels"] for target in panel["targets"]}
    asked |= {one["definition"] for one in board["templating"]["list"] if one["type"] == "query"}
    assert {name for text in asked for name in re.findall(r"(?<!\w)jobctl_\w+", text)} - {"jobctl_phase"} < names()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_page_names_every_metric() -> None:
    page = (DOCS / "metrics.md").read_text()
    assert {name for name in names() if f"`{name}`" not in page} == set()
    known_names = names() | {"jobctl_phase"}
    assert set(re.findall(r"(?<![\w/])jobctl_\w+", page)) <= known_names
