"""Records of a job: what `up` writes down of a spec is read back as the same spec, whatever the spec says.

Otherwise nobody could say which key has changed, and no node could move.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.planner.inputs import inputs_of_job
from jobctl.jobspec.spec.load import load_spec, load_text
from jobctl.jobspec.spec.model import Spec, spec_recorded
from tests.render import clusters, plans
from tests.spec.test_reference import FIELDS
from tests.tools.cases import split_case

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*/job.yaml"))
CASES = sorted(ROOT.glob("tests/errors/cases/*.txt"))
HEAD = "name: demo\nframework: torch\nimage: img\n"
SCRIPT = f"{HEAD}script: train.py\n"
# What no example and no case of the golden files says, and each form of the keys that have several.
FORMS = (
    *(f"{SCRIPT}recovery: {{hang_timeout: {form}}}" for form in ("off", "auto", "10m", "")),
    *(f"{SCRIPT}recovery: {{standby: {form}}}" for form in ("off", "auto", "", "{}", "{import: []}", "{import: [a.b]}")),
    *(f"{SCRIPT}nodes: {form}" for form in ("4", '"2:4"', "{min: 2, max: 4}")),
    *(f"{SCRIPT}devices: {form}" for form in ("cpu", "cpu:4", "gpu", "gpu:8", "{kind: xpu, count: 2}")),
    *(f"{SCRIPT}devices: {{kind: gpu, ids: {form}}}" for form in ('"0-3,6"', "[1, 2]", "0")),
    *(f"{SCRIPT}checkpoint: {form}" for form in ("/c", "{dir: /c, shared: false, keep: 5, per_job: true}")),
    *(f"{SCRIPT}code: {form}" for form in (".", "~/src", "{source: src, target: /w, exclude: ['*.bin'], include: .env}")),
    *(f"{SCRIPT}build: {form}" for form in (".", "{args: [A=1, D]}", "{context: c, args: {A: 1, D: }, target: t, on: h}")),
    *(f"{SCRIPT}data: [{form}]" for form in ("'/d:/t'", "'h:/d:/t'", "{source: d, target: /t, hosts: all}")),
    *(f"{SCRIPT}data: [{{source: d, target: /t, hosts: {form}}}]" for form in ("a", "['a[1-3]', b]")),
    *(f"{SCRIPT}volumes: [{form}]" for form in ("'/d:/d:ro'", "'c:/c'", "{type: tmpfs, target: /t}")),
    *(f"{SCRIPT}secrets: {form}" for form in ("[A, B]", "{A: {env: X}, B: {file: /f}, C: , D: {}}")),
    *(f"{SCRIPT}setup: {form}" for form in ("pip install x", "[a, b]")),
    *(f"{SCRIPT}fitness: {form}" for form in ("off", "quick", "full")),
    *(f"{SCRIPT}container: {{user: {form}, runtime: nvidia}}" for form in ("self", "1000", '"1000:1001"')),
    *(f"{SCRIPT}slurm: {{requeue: {form}}}" for form in ("auto", "requeue", "chain", "off")),
    f"{SCRIPT}version: 1\nenv: {{A: 1, B: no, D: , E: '', F: '~', x-a: b}}",
    f"{SCRIPT}resources: {{shm_size: 16g, memory: 1073741824, cpus: 0.5, ulimits: {{nofile: 5, core: {{soft: 0, hard: -1}}}}}}",
    f"{SCRIPT}stop_grace_period: 0s\nrendezvous: {{port: 0x7000, timeout: 1h30m}}",
    f"{SCRIPT}recovery: {{window: 1h, rules: [{{log: 'a\\.b', do: restart}}, {{exit: 0, do: fail}}]}}",
    f"{SCRIPT}recovery: {{rules: [{{event: straggler, do: exclude_host}}]}}",
    f"{HEAD}command: [a, 1, no]\nper: node\ntorch: {{torchrun: --numa-binding=node}}",
    f"{HEAD}script: ${{NONE-}}\nmodule: m",
    f"{SCRIPT}mode: ps\nps: {{servers: 1, trainers: 2}}\ntorch: {{rejoin: true}}",
    f"{SCRIPT}secrets: [P]\netcd: {{endpoints: 'a:1', user: u, password: P, tls: {{ca: /a, cert: /b, key: /c}}}}",
    f"{SCRIPT}etcd: {{managed: {{replicas: 3, port: 2380, image: etcd}}}}",
    f"{SCRIPT}etcd: {{managed: {{}}}}",
    f"{SCRIPT}notify: []",
    f"{SCRIPT}notify: [{{on: hang, webhook: URL, format: teams, from_hosts: true}}, {{webhook: {{file: f}}}}, {{command: page}}]",
    f"{SCRIPT}notify: [{{email: a@b}}, {{email: [a@b, c]}}, {{email: {{to: a@b, from: c, smtp: {{host: h, port: 25}}}}}}]",
    f"{SCRIPT}notify: [{{email: {{to: a, smtp: {{host: h, security: none, user: u, password: {{env: P}}}}}}}}]",
    f"{SCRIPT}kubernetes: {{operator: paddle-operator, intranet: Host, clean_pod_policy: Always}}".replace("torch", "paddle"),
    f"{SCRIPT}kubernetes: {{tolerations: [{{key: a, operator: Equal, value: b}}], automount_service_account_token: true}}",
)  # fmt: skip
OTHERWISE = {
    "kubernetes.context",  # which cluster it is stands in another record
    "resources.ulimits.hard",  # below the name of a limit
    "resources.ulimits.soft",
    "version",  # there is one
}


def test_every_spec_is_the_same_once_it_was_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are the inputs that containers have as a label. No key is missing here."""
    said: set[str] = set()
    for spec in every_spec(monkeypatch):
        kept = json.loads(json.dumps(spec.model_dump(mode="json")))
        read = spec_recorded(kept)
        assert (read, read.model_dump(mode="json")) == (spec, kept)
        assert digest(read) == digest(spec)
        said |= set(keys_of(spec.model_dump(by_alias=True, exclude_defaults=True)))
    assert set(FIELDS) - said == OTHERWISE


def digest(spec: Spec) -> str:
    return inputs_of_job(spec, Context("compose", "/specs", "me@here", "1.0"), ())


def every_spec(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spec]:
    """Yield the specs of the forms, the examples, and the cases of `validate` and of rendering."""
    texts = [split_case(path.read_text(encoding="utf-8"))[0].get("job.yaml", "") for path in CASES]
    cases = (load_text(Path("/none/job.yaml"), text, environ={"D": "d"}).spec for text in texts)
    yield from (spec for spec in cases if spec is not None)
    rendered: list[Spec] = []
    plan = planner.plan
    monkeypatch.setattr(planner, "plan", lambda spec, *given: (rendered.append(spec), plan(spec, *given))[1])
    assert {*plans.cases(), *clusters.cases.__wrapped__()}  # which no other test has had made before
    yield from rendered
    loaded = [load_spec(path, environ={}) for path in EXAMPLES]
    loaded += [load_text(Path("/none/job.yaml"), text, environ={"D": "d"}) for text in FORMS]
    for one in loaded:
        assert one.spec is not None, one.diagnostics
        yield one.spec


def keys_of(values: Any, path: str = "") -> Iterator[str]:
    """Yield each key with its full path."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield path + key
            yield from keys_of(value, f"{path}{key}.")
    elif isinstance(values, tuple | list):
        for value in values:
            yield from keys_of(value, path)
