"""Which artefacts there are, what they are called, and what does not change them."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace

import pytest

from jobctl.jobspec.launcher.order.launch import Launch, Slot
from jobctl.jobspec.plan import types
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Devices, Plan
from jobctl.jobspec.render.artefact import control_json, folder, render
from jobctl.jobspec.render.errors import RenderError
from jobctl.jobspec.render.payload import launch_json
from jobctl.jobspec.spec.targets import TargetName
from tests.render.plans import cases, container, launch, node, plan, planned, with_container


def paths(wanted: Plan) -> list[str]:
    return [artefact.path for artefact in render(wanted, first_generation(wanted))]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("compose-crowded", ["gpu01/compose.yaml", "gpu02/compose.yaml", "fe80%3A%3A7/compose.yaml"]),
        ("ssh-crowded", ["gpu01/node-0.sh", "gpu02/node-1.sh", "gpu01/node-2.sh", "fe80%3A%3A7/node-3.sh"]),
        ("local", ["localhost/node-0.sh", "localhost/node-1.sh"]),
    ],
)
def test_launcher_and_control_file_once_then_a_folder_per_host(name: str, expected: list[str]) -> None:
    assert paths(cases()[name]) == ["launcher.py", "control.json", *expected]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("gpu01", "gpu01"),
        ("gpu01.cluster-a.example", "gpu01.cluster-a.example"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("-rf", "%2Drf"),
        ("../../etc", "%2E.%2F..%2Fetc"),
        ("/etc", "%2Fetc"),
        ("a%2Fb", "a%252Fb"),
        ("a b\n", "a%20b%0A"),
        ("é", "%C3%A9"),
        ("launcher.py", "%6Cauncher.py"),
        ("control.json", "%63ontrol.json"),
    ],
)
def test_folder_is_safe(host: str, expected: str) -> None:
    assert folder(host) == expected


def test_rendered_one_by_one() -> None:
    """An artefact is there before the next is made: one that fails does so only when its turn comes."""
    wanted = plan(node(0), with_container(node(1, "gpu02"), options=("--cidfile=x",)))
    artefacts = render(wanted, first_generation(wanted))
    assert [next(artefacts).path for _ in range(2)] == ["launcher.py", "control.json"]
    assert next(artefacts).path == "gpu01/compose.yaml"
    with pytest.raises(RenderError, match="--cidfile"):
        next(artefacts)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (plan(with_container(node(), devices=Devices("npu", None))), "devices-unknown"),
        (plan(with_container(node(), env=(("X", "\ud800"),)), target="local"), "not-text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused(wanted: Plan, code: str) -> None:
    with pytest.raises(RenderError) as caught:
        list(render(wanted, first_generation(wanted)))
    assert caught.value.code == code


def spec_labels(wanted: Plan) -> list[str]:
    text = b"".join(a.content for a in render(wanted, first_generation(wanted))).decode()
    return re.findall(r'jobctl\.spec["=: ]+([0-9a-f]{64})', text)


@pytest.mark.parametrize("target", ["compose", "ssh"])
def test_spec_label_follows_what_is_started_and_nothing_else(target: str) -> None:
    one, two = node(0), node(1, "gpu02", "10.0.0.2")
    before = spec_labels(plan(one, two, target=target))
    newer = tuple((name, "9.9" if name == "jobctl.version" else value) for name, value in container(0).labels)
    with_other_version = plan(with_container(one, labels=newer), two, target=target)
    changed = plan(with_container(one, env=(("LR", "0.2"),)), two, target=target)
    assert len(set(before)) == 2
    assert spec_labels(with_other_version) == before
    as_in_earlier_versions = plan(with_container(one, restart="no"), two, target=target)
    assert spec_labels(as_in_earlier_versions) == before
    assert spec_labels(plan(one, target=target)) == before[:1]
    assert spec_labels(changed)[1:] == before[1:]
    assert spec_labels(changed)[0] != before[0]


def test_no_artefact_holds_another_nodes_place() -> None:
    for target in ("compose", "ssh"):
        wanted = plan(node(0, "gpu01", "10.9.9.1"), node(1, "gpu02", "10.9.9.2"), target=target)
        first, second = list(render(wanted, first_generation(wanted)))[2:]
        assert b"10.9.9.2" not in first.content
        assert b"gpu02" not in first.content
        assert b"10.9.9.1" not in second.content


def test_launch_json_is_all_of_launch() -> None:
    assert json.loads(launch_json(replace(launch(), start=launch().start[:5], command=("é",)))) == {
        "node": 0,
        "host": "gpu01",
        "role": "trainer",
        "nproc": 2,
        "start": ["python3", "-m", "torch.distributed.run", "--nnodes", {"slot": "nnodes"}],
        "command": ["é"],
        "env": [["JOBCTL_CHECKPOINT_KEEP", "2"], ["OMP_NUM_THREADS", "1"]],
        "log_name": "workerlog",
        "devices": ["cpu:0", "cpu:1"],
        "setup": [],
        "secrets": [],
        "workdir": None,
        "interface": None,
        "interface_env": ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"],
        "stop_grace": 45.0,
        "hang_timeout": None,
    }


def test_launchers_read_what_jobctl_writes_with_the_same_defaults() -> None:
    """`listens`, `meets` and `one_port` are for jobctl itself, which chooses ports by them."""
    written = json.loads(launch_json(launch()))
    read, defaults = Launch.from_json(written), {field.name: field.default for field in fields(types.Launch)}
    assert defaults.keys() - vars(read).keys() == {"listens", "meets", "one_port"}
    left_out = vars(read).keys() - written.keys()
    assert {name: vars(read)[name] for name in left_out} == {name: defaults[name] for name in left_out}
    assert read.start[4] == Slot("nnodes")


def test_control_json_is_all_of_a_generation_and_more() -> None:
    generation = first_generation(plan())
    assert json.loads(control_json(generation, {"on_failure": "exit"})) == {
        **json.loads(control_json(generation)),
        "on_failure": "exit",
    }


TELLS = "name: demo\nframework: torch\nmodule: train\nimage: i\nnotify: [{webhook: HOOK, from_hosts: true}]\n"


@pytest.mark.parametrize("target", ["local", "compose", "ssh"])
def test_launchers_that_tell_get_the_folder_of_secrets_and_artefacts_no_url(target: TargetName) -> None:
    wanted = planned(TELLS, target)
    texts = [one.content.decode() for one in render(wanted, first_generation(wanted)) if "launcher" not in one.path]
    (node,) = [text for text in texts if "JOBCTL_LAUNCH" in text]
    assert "secrets.json" in node
    assert '"tells"' in node.replace("\\", "")
    assert not any("HOOK" in text for text in texts)
    silent = planned(TELLS.replace(", from_hosts: true", ""), target)
    assert not any(b"secrets.json" in one.content for one in list(render(silent, first_generation(silent)))[2:])
