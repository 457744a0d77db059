"""Manifests, by real API servers: nothing in them is unknown to today's, and the rules of an old one hold for all pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.render.artefact import render
from tests.render.clusters import cases
from tests.tools.apiservers import RealServer, crds

CASES = cases()


def _objects(name: str) -> list[Any]:
    plan = CASES[name]
    return [yaml.load(one.content, yaml.CSafeLoader) for one in render(plan, first_generation(plan))]


def _refused(server: RealServer, things: list[Any]) -> list[Any]:
    """Return what a server says against objects: created as `kubectl create` does it, and applied as `up` does it."""
    answers = [(one["kind"], *answer(server, one)) for one in things for answer in _answers(server, one)]
    return [answer for answer in answers if answer[1] != 201]


def _answers(server: RealServer, thing: Any) -> list[Callable[[RealServer, Any], tuple[int, str]]]:
    """Return how an object is handed over. The old server would not apply a Job: it has not heard of some of its fields."""
    return [_created] if thing["kind"] == "Job" and server.which == "full" else [_created, _applied]


def _created(server: RealServer, thing: Any) -> tuple[int, str]:
    status, said = server.ask("POST", f"{_folder(server, thing)}?dryRun=All&fieldValidation=Strict", thing)
    return status, said.get("message", "")


def _applied(server: RealServer, thing: Any) -> tuple[int, str]:
    path = f"{_folder(server, thing)}/{thing['metadata']['name']}"
    how = "dryRun=All&fieldValidation=Strict&fieldManager=jobctl"
    status, said = server.ask("PATCH", f"{path}?{how}", thing, "application/apply-patch+yaml")
    return status, said.get("message", "")


def _folder(server: RealServer, thing: Any) -> str:
    kind = server.api.kind_of(thing)
    return f"{kind.root}/namespaces/{thing['metadata'].get('namespace') or 'default'}/{kind.plural}"


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_unknown_to_the_server_of_today(name: str, mini: RealServer) -> None:
    known = [one for one in _objects(name) if "." not in one["apiVersion"] or crds()]
    assert _refused(mini, [*known, *_pods(_objects(name))]) == []


@pytest.mark.parametrize("name", CASES)
def test_all_pods_are_as_the_rules_of_a_whole_server_want_them(name: str, full: RealServer) -> None:
    core = [one for one in _objects(name) if "." not in one["apiVersion"]]
    assert _refused(full, [*core, *_pods(_objects(name))]) == []


def _pods(made: Any) -> Iterator[Any]:
    """Yield the pods of the templates in an object, wherever they are."""
    for item in made if isinstance(made, list) else made.values() if isinstance(made, dict) else ():
        yield from _pods(item)
    if isinstance(made, dict) and "containers" in (made.get("spec") or {}):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **made["metadata"]}, "spec": made["spec"]}
        yield pod
