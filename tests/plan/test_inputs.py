"""What containers are made from: the same in each version of jobctl, and another if anything is that a user gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.sent import Code, Dataset
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context, Placement
from jobctl.jobspec.render import compose, container, shell
from jobctl.jobspec.render.artefact import ids, service_ids, spare_ids
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.targets import TargetName
from tests.plan.made import spec_of

HOSTS = "a slots=2\nb slots=2\ns spare slots=2\n"
TEXT = "nodes: 2\ndevices: gpu:2\netcd: {managed: {replicas: 1}}\n"
OUTSIDE = Context("compose", "/specs", "me@here", "1.0")


def made(
    text: str = TEXT, hosts: str = HOSTS, context: Context = OUTSIDE, placement: dict[int, str] | None = None
) -> Plan:
    return planner.plan(spec_of(text), parse_hosts(hosts, "hosts.txt").hosts, context, Placement(placement or {}))


def every(plan: Plan) -> dict[str, ArtefactId]:
    """Return what identifies the artefacts of nodes, services and spares, by their names."""
    return {**{f"node-{node}": one for node, one in ids(plan).items()}, **service_ids(plan), **spare_ids(plan)}


@pytest.mark.parametrize("target", ["compose", "ssh"])
def test_another_version_of_jobctl_replaces_nothing(monkeypatch: pytest.MonkeyPatch, target: TargetName) -> None:
    """It renders containers in another way, and knows more keys of the spec."""
    before = every(made(context=replace(OUTSIDE, target=target)))
    for module in (compose, shell):  # what they keep of the version before
        monkeypatch.setattr(module, "_alike", module._alike.__wrapped__)
    monkeypatch.setattr(container, "LOG_OPTIONS", (("max-file", "5"),))
    dump = Spec.model_dump
    monkeypatch.setattr(
        Spec,
        "model_dump",
        lambda self, **how: {**dump(self, **how), **({} if how.get("exclude_defaults") else {"newer": None})},
    )
    after = every(made(context=replace(OUTSIDE, target=target, version="2.0")))
    assert sorted(before) == ["etcd-0", "node-0", "node-1", "s"]
    for name, one in before.items():
        assert (one.hash != after[name].hash, one.stands_for(after[name])) == (True, True), name


CODE = Code("/specs", "/workspace", (), version="v1")
DATA = Dataset("/data", "/data", "data", "v1")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (made(TEXT + "env: {A: 1}\n"), []),
        (made(context=replace(OUTSIDE, owner="you@here")), []),
        (made(context=replace(OUTSIDE, directory="/other")), ["etcd-0", "node-0", "node-1", "s"]),
        (made(hosts=HOSTS.replace("b ", "b addr=10.0.0.9 ")), ["etcd-0", "node-0", "s"]),
        (made(hosts=HOSTS.replace("b slots=2", "b devices=2-3")), ["etcd-0", "node-0", "s"]),
        (made(hosts=HOSTS.replace("a ", "a interface=eth9 ")), ["etcd-0", "node-1", "s"]),
        (made(hosts=HOSTS.replace("a ", "a addr=10.0.0.9 ")), []),  # a member of etcd is there
        (made(placement={0: "b", 1: "a"}), ["etcd-0", "s"]),
        (replace(made(), code=CODE), ["etcd-0"]),
        (replace(made(), data=(DATA,)), ["etcd-0"]),
    ],
)
def test_whatever_a_user_gives_makes_other_inputs(other: Plan, same: list[str]) -> None:
    before, after = every(made()), every(other)
    assert sorted(name for name in before if before[name].inputs == after[name].inputs) == same


def test_versions_of_code_and_data_make_other_inputs() -> None:
    before, after = (every(replace(made(), code=replace(CODE, version=v), data=(DATA,))) for v in ("v1", "v2"))
    assert before["node-0"].inputs != after["node-0"].inputs
    before, after = (every(replace(made(), data=(replace(DATA, version=v),))) for v in ("v1", "v2"))
    assert before["s"].inputs != after["s"].inputs


def test_what_an_older_version_has_started_has_no_inputs() -> None:
    known = ArtefactId("a", "i", "2.0")
    assert not ArtefactId("b").stands_for(known)
    assert not known.stands_for(ArtefactId("b"))
    assert not known.stands_for(None)
    assert known.stands_for(ArtefactId("a"))


def test_what_this_version_has_made_in_another_way_is_another() -> None:
    """As if something were missing among the inputs: what its own version has made is compared whole."""
    assert not ArtefactId("a", "i", "1.0").stands_for(ArtefactId("b", "i", "1.0"))
    assert ArtefactId("a", "i", "1.0").stands_for(ArtefactId("b", "i", "2.0"))


def test_containers_do_not_depend_on_the_folder_of_the_spec() -> None:
    before, after = every(made()), every(made(context=replace(OUTSIDE, directory="/other")))
    assert before == after
