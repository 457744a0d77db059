"""The program that looks around where processes will run, and what it says of the framework there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from jobctl.jobspec.deploy.check.survey import Found, Survey
from jobctl.jobspec.deploy.model.finding import Finding, Verdict
from jobctl.jobspec.deploy.model.untrusted import Json, parse_object
from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.plan.types import Node
from jobctl.jobspec.spec.targets import traits_of


def probe_said(out: bytes, token: str) -> Json | None:
    """Return what the program printed: the line that has our token, whatever the image or Python printed besides."""
    said = map(parse_object, out.splitlines())
    return next((one for one in said if one is not None and one.get("token") == token), None)


def probe_source() -> str:
    """Return the program that looks around where a job's processes will run."""
    return files("jobctl.jobspec.deploy.check").joinpath("probe.py").read_text(encoding="utf-8")


def framework_findings(run: Survey, host: str, node: Node, probe: Mapping[str, Any]) -> Found:
    """Yield what a look around has told of the framework, in an image or on this machine."""
    assert run.plan is not None
    module, lacks, local = framework(run.plan.framework).module, probe["lacks"], traits_of(run.plan.target).is_here
    missing = f"No module named '{module}'"
    if (run.deep and probe["module"] is None) or any(text and text.endswith(missing) for text in lacks):
        whose = "" if local else "the image's "
        text = f"{whose}{node.container.python} cannot import `{module}`"
        hint = "install it, or activate the environment that has it" if local else "is it the right image?"
        yield _or_setup(node, Finding(host, "framework", "error", text, "framework-missing", hint))
        return
    if run.deep:
        yield Finding(host, "framework", "ok", f"{module} {probe['module']}")
    for need, text in zip(run.needs, lacks, strict=True):
        if text is not None:
            verdict: Verdict = "warning" if need.warns else "error"
            yield _or_setup(node, Finding(host, "framework", verdict, text, need.code, need.hint))


def _or_setup(node: Node, finding: Finding) -> Finding:
    """Return a finding about the image, as a warning where the job's `setup` may still fix that."""
    if not node.launch.setup:
        return finding
    return replace(finding, verdict="warning", message=f"{finding.message} (unless `setup` brings it)")
