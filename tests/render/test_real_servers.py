"""Manifests, by real API servers: nothing in them is unknown to today's, and the rules of an old one hold for all pods."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiservers import RealServer
from clusters import cases

from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.render.artefact import render

CASES = cases()


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Today's server, with the kinds of the operators where `JOBCTL_CRDS` names the folder that has them."""
    with RealServer("mini", tmp_path_factory.mktemp("kube") / "mini") as real:
        folder = os.environ.get("JOBCTL_CRDS")
        for crd in sorted(Path(folder).glob("*.yaml")) if folder else ():
            if "v1beta1" not in crd.name:
                real.define(crd)
        _furnish(real)
        yield real


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """The old server with all rules of pods. It has no Indexed Jobs and drops what it does not know."""
    with RealServer("full", tmp_path_factory.mktemp("kube") / "full") as real:
        _furnish(real)
        yield real


def _furnish(server: RealServer) -> None:
    """Make what pods name."""
    for space in ("default", "research"):
        server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        for account in ("default", "trainer"):
            # No controller is there that would make tokens.
            made = {"metadata": {"name": account}, "automountServiceAccountToken": False}
            server.ask("POST", f"/api/v1/namespaces/{space}/serviceaccounts", made)
    server.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    server.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)


def _objects(name: str) -> list[Any]:
    plan = CASES[name]
    return [yaml.load(one.content, yaml.CSafeLoader) for one in render(plan, first_generation(plan))]


def _refused(server: RealServer, things: list[Any]) -> list[Any]:
    answers = [(one["kind"], *server.create(one, one["metadata"].get("namespace") or "default")) for one in things]
    return [answer for answer in answers if answer[1] != 201]


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_unknown_to_the_server_of_today(name: str, mini: RealServer) -> None:
    known = [one for one in _objects(name) if "." not in one["apiVersion"] or "JOBCTL_CRDS" in os.environ]
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
