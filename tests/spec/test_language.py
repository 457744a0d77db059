"""The language, key by key: short forms, YAML 1.2 scalars, anchors, interpolation, and what `validate` calls valid."""

from __future__ import annotations

from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

from jobctl.jobspec.spec.load import load_text, read_name
from jobctl.jobspec.spec.model import Spec, spec_recorded

DEFAULTS = Path(__file__).parents[1] / "golden" / "spec" / "defaults.txt"  # renewed with --update-golden
HEAD = "name: demo\nframework: torch\nscript: train.py\n"


def load(text: str, directory: Path = Path("/none"), **environ: str) -> Spec:
    """Return the spec that `text`, below the required keys, says."""
    loaded = load_text(directory / "job.yaml", HEAD + text, environ=environ)
    assert loaded.spec is not None, loaded.diagnostics
    return loaded.spec


def dump(spec: Spec, key: str) -> Any:
    return spec.model_dump(include={key})[key]


def test_defaults_are_all_there(request: pytest.FixtureRequest) -> None:
    found = pformat(load("").model_dump(), sort_dicts=False) + "\n"
    if request.config.getoption("--update-golden"):
        DEFAULTS.write_text(found)
    assert found == DEFAULTS.read_text()


BIND = {"kind": "bind", "read_only": False}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("nodes: 4", "nodes", {"min": 4, "max": 4}),
        ('nodes: "2:4"', "nodes", {"min": 2, "max": 4}),
        ("nodes: 2:4", "nodes", {"min": 2, "max": 4}),
        ("nodes: {min: 2, max: 4}", "nodes", {"min": 2, "max": 4}),
        ("devices: cpu", "devices", {"kind": "cpu", "count": 1, "ids": None}),
        ("devices: cpu:4", "devices", {"kind": "cpu", "count": 4, "ids": None}),
        ("devices: gpu", "devices", {"kind": "gpu", "count": None, "ids": None}),
        ("devices: gpu:8", "devices", {"kind": "gpu", "count": 8, "ids": None}),
        ("devices: {kind: npu, count: 2}", "devices", {"kind": "npu", "count": 2, "ids": None}),
        ('devices: {kind: xpu, ids: "0-3,6"}', "devices", {"kind": "xpu", "count": None, "ids": (0, 1, 2, 3, 6)}),
        ("devices: {kind: xpu, ids: [1, 2]}", "devices", {"kind": "xpu", "count": None, "ids": (1, 2)}),
        ("checkpoint: /c", "checkpoint", {"dir": "/c", "shared": True, "keep": 2, "per_job": False}),
        (
            "checkpoint: {dir: /c, shared: false, keep: 5, per_job: true}",
            "checkpoint",
            {"dir": "/c", "shared": False, "keep": 5, "per_job": True},
        ),
        ("setup: pip install x", "setup", ("pip install x",)),
        ("setup: [a, b]", "setup", ("a", "b")),
        ("env_file: a.env", "env_file", ("a.env",)),
        ("outputs: [runs/, wandb/]", "outputs", ("runs/", "wandb/")),
        ("code: .", "code", {"source": ".", "target": "/workspace", "exclude": ()}),
        (
            "code: {source: src, target: /w, exclude: ['*.bin']}",
            "code",
            {"source": "src", "target": "/w", "exclude": ("*.bin",)},
        ),
        (
            "data: ['/d:/data', {source: sub, target: /t, hosts: all}]",
            "data",
            ({"source": "/d", "target": "/data"}, {"source": "sub", "target": "/t"}),
        ),
        (
            "volumes: ['/d:/d:ro', 'cache:/c', {type: tmpfs, target: /t}, {source: /s, target: /x}]",
            "volumes",
            (
                {"kind": "bind", "source": "/d", "target": "/d", "read_only": True},
                {"kind": "volume", "source": "cache", "target": "/c", "read_only": False},
                {"kind": "tmpfs", "source": None, "target": "/t", "read_only": False},
                {**BIND, "source": "/s", "target": "/x"},
            ),
        ),
        (
            "secrets: [A, B]",
            "secrets",
            ({"name": "A", "env": "A", "file": None}, {"name": "B", "env": "B", "file": None}),
        ),
        (
            "secrets: {A: {env: X}, B: {file: /f}, C: }",
            "secrets",
            (
                {"name": "A", "env": "X", "file": None},
                {"name": "B", "env": None, "file": "/f"},
                {"name": "C", "env": "C", "file": None},
            ),
        ),
        (
            "resources: {shm_size: 16g, memory: 512m, cpus: 1.5, ulimits: {nofile: 65535, core: {soft: 0, hard: -1}}}",
            "resources",
            {
                "shm_size": 16 << 30,
                "memory": 512 << 20,
                "cpus": 1.5,
                "ulimits": {"nofile": {"soft": 65535, "hard": 65535}, "core": {"soft": 0, "hard": -1}},
            },
        ),
        ("stop_grace_period: 1h30m", "stop_grace_period", 5400.0),
        ("rendezvous: {port: 29500, timeout: 5m}", "rendezvous", {"port": 29500, "timeout": 300.0}),
        (
            "torch: {torchrun: [--numa-binding, node]}",
            "torch",
            {"torchrun": ("--numa-binding", "node"), "rejoin": False},
        ),
        (
            "etcd: {managed: {replicas: 3}}",
            "etcd",
            {
                "endpoints": None,
                "tls": None,
                "user": None,
                "password": None,
                "managed": {"replicas": 3, "port": 2379, "image": None},
            },
        ),
    ],
)
def test_short_and_long_forms_become_one_shape(text: str, key: str, value: object) -> None:
    assert dump(load(text), key) == value


@pytest.mark.parametrize(("text", "seconds"), [("off", None), ("auto", 0.0), ("10m", 600.0)])
def test_hang_timeout(text: str, seconds: float | None) -> None:
    assert load(f"recovery: {{hang_timeout: {text}}}").recovery.hang_timeout == seconds


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("auto", None),
        ("", None),
        ("{}", None),
        ("{import: []}", ()),
        ("{import: [torchvision, a.b]}", ("torchvision", "a.b")),
    ],
)
def test_standby(text: str, modules: tuple[str, ...] | None) -> None:
    assert load(f"recovery: {{standby: {text}}}").recovery.standby.modules == modules


def test_standby_can_be_off() -> None:
    spec = load("recovery: {standby: off}")
    assert spec.recovery.standby is None
    assert spec_recorded(spec.model_dump(mode="json")) == spec


def test_scalars_stay_what_the_user_wrote() -> None:
    written = {"TIME": "22:22", "MODE": "0755", "NO": "no", "OFF": "off", "VERSION": "1.10", "HEX": "0x10", "E": "1e3"}
    spec = load("env:\n" + "".join(f"  {name}: {value}\n" for name, value in written.items()))
    assert spec.env == written
    assert load("args: [1e-3, 007, true, ~x, 2024-01-01]").args == ("1e-3", "007", "true", "~x", "2024-01-01")


def test_env_without_a_value_is_passed_through() -> None:
    assert load("env: {A: , B: ~, C: null, D: '', E: 'null'}", A="1", B="2", C="3").env == {
        "A": "1",
        "B": "2",
        "C": "3",
        "D": "",
        "E": "null",
    }


def test_anchors_and_merges() -> None:
    text = """
x-common: &common {A: '1', B: '2'}
x-other: &other {B: '3', C: '4'}
env:
  <<: [*common, *other]
  A: '0'
args: &args [a, b]
setup: *args
"""
    spec = load(text)
    assert (spec.env, spec.args, spec.setup) == ({"A": "0", "B": "2", "C": "4"}, ("a", "b"), ("a", "b"))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A}", "a"),
        ("$A-${A}", "a-a"),
        ("${NO:-d}", "d"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY-d}", ""),
        ("${A:-d}", "a"),
        ("${A:+yes}", "yes"),
        ("${NO:+yes}", ""),
        ("${NO:-${A}}", "a"),
        ("${NO:-${ALSO_NO:-x}}y", "xy"),
        ("${A:-${NO:?unused}}", "a"),
        ("${A:?message}", "a"),
        ("$$A $${A} $$$$", "$A ${A} $$"),
        ("100$$", "100$"),
        ("${NO:-}", ""),
        ("no dollar", "no dollar"),
    ],
)
def test_interpolation(text: str, result: str) -> None:
    assert load(f"env: {{V: '{text}'}}", A="a", EMPTY="").env == {"V": result}


def test_keys_and_extensions_are_not_interpolated() -> None:
    assert load("x-a: ${NOPE:?}\nenv: {x-b: '${NOPE:?}', A: 1}").env == {"A": "1"}


def test_an_empty_script_is_none() -> None:
    """A spec may leave to variables whether a script or a module runs."""
    text = "name: demo\nframework: torch\nscript: ${SCRIPT-}\nmodule: ${MODULE-}\n"
    spec = load_text(Path("/none/job.yaml"), text, environ={"MODULE": "m"}).spec
    assert spec is not None
    assert (spec.script, spec.module) == (None, "m")


def test_extensions_are_no_limits() -> None:
    assert set(load("resources: {ulimits: {x-a: [1], nofile: 2}}").resources.ulimits) == {"nofile"}


def test_a_folder_named_dot_env_is_none_of_ours(tmp_path: Path) -> None:
    """Virtual environments are called so; Compose leaves them alone, too."""
    (tmp_path / ".env" / "bin").mkdir(parents=True)
    assert load("env: {A: '${A-unset}'}", tmp_path).env == {"A": "unset"}


def test_dot_env_and_env_files(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=from-dot-env\nB='quoted $x'\n# comment\nexport C=c\n")
    (tmp_path / "one.env").write_text("X=1\nY=1\nZ=${A}\n")
    (tmp_path / "two.env").write_text("Y=2\n")
    spec = load("env_file: [one.env, two.env]\nenv: {A: $A, B: $B, C: $C, X: 0}", tmp_path, A="from-environment")
    assert spec.env == {
        "X": "0",
        "Y": "2",
        "Z": "from-environment",
        "A": "from-environment",
        "B": "quoted $x",
        "C": "c",
    }


def test_a_secret_in_a_file_of_variables_is_none_of_them(tmp_path: Path) -> None:
    """What is said of variables is in artefacts, too, and `docker inspect` shows it."""
    (tmp_path / "one.env").write_text("TOKEN=hush\nA=1\n")
    spec = load("env_file: one.env\nsecrets: [TOKEN]", tmp_path)
    assert (spec.env, "hush" in spec.model_dump_json()) == ({"A": "1"}, False)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("V=${A}/x", "a/x"),
        ("V=$A", "a"),
        ('V="$A\\t$A"', "a\ta"),
        ("V='$A'", "$A"),
        ('V="\\$A"', "$A"),
        ("V=$$A", "$A"),
        ("W=1\nV=${W}2", "12"),
        ("A=other\nV=$A", "a"),  # the environment is above the file, as everywhere
        ("V=${NOPE:-default}", "default"),
        ("V: value", "value"),
        ("export V: 'quoted $A'", "quoted $A"),
        ("V=\nV", ""),
        ("V='pa$ $(word)'", "pa$ $(word)"),
        ("V=pa$ $(word)", "pa$ $(word)"),
    ],
)
def test_lines_of_variables_are_those_of_compose(tmp_path: Path, line: str, value: str) -> None:
    (tmp_path / ".env").write_text(line + "\n")
    (tmp_path / "one.env").write_text(line.replace("V", "X") + "\n")
    spec = load("env_file: one.env\nenv: {V: $V}", tmp_path, A="a")
    assert (spec.env["V"], spec.env["X"]) == (value, value)


def test_a_name_alone_in_a_file_takes_its_value_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("B=2\nNOPE\n")
    (tmp_path / "one.env").write_text("A\nexport B\nC\n")
    assert load("env_file: one.env\nenv: {N: '${NOPE-unset}'}", tmp_path, A="1").env == {
        "A": "1",
        "B": "2",
        "N": "unset",
    }


def test_a_spec_is_the_same_once_it_was_written_down() -> None:
    """So `plan` can name the key that has changed since, and nodes can move."""
    spec = load(
        "volumes: [{type: tmpfs, target: /t}]\nrecovery: {standby: {import: [numpy]}}\n"
        "notify: [{on: [failed], email: {to: a@b.example, from: c@b.example}}]\n"
    )
    assert spec_recorded(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize("text", ["~/src", "{source: ~/src}"])
def test_code_may_be_below_the_home_directory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert load(f"code: {text}").code.source == "/home/me/src"


def test_specs_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load("").name = "other"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("name: demo\nimage: ${NOPE:?}\nnonsense: [", None),
        ("name: demo\nimage: ${NOPE:?}\nnonsense: 1", "demo"),
        ("name: ../../etc\n", None),
        ("framework: torch\n", None),
    ],
)
def test_the_name_is_read_whatever_else_is_wrong(text: str, name: str | None, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert read_name(path).name == name


@pytest.mark.parametrize(
    ("written", "override", "key", "meant"),
    [
        ("checkpoint: /c", "checkpoint.per_job=true", "checkpoint", {"dir": "/c", "per_job": True}),
        ("checkpoint: ${CK:-/c}", "checkpoint.keep=3", "checkpoint", {"dir": "/c", "keep": 3}),
        ("code: ./src", "code.target=/work", "code", {"source": "./src", "target": "/work"}),
        ("devices: cpu:4", "devices.count=2", "devices", {"kind": "cpu", "count": 2}),
        ("nodes: 2", "nodes.max=4", "nodes", {"min": 2, "max": 4}),
    ],
)
def test_a_part_of_a_short_form_can_be_set(written: str, override: str, key: str, meant: dict[str, Any]) -> None:
    loaded = load_text(Path("/none/job.yaml"), f"{HEAD}{written}\n", environ={}, overrides=(override,))
    assert loaded.spec is not None, loaded.diagnostics
    found = dump(loaded.spec, key)
    assert {name: found[name] for name in meant} == meant


def test_what_is_wrong_in_a_short_form_is_told_where_it_stands() -> None:
    loaded = load_text(Path("job.yaml"), f"{HEAD}checkpoint: ck\n", environ={}, overrides=("checkpoint.keep=3",))
    (found,) = [diagnostic for diagnostic in loaded.diagnostics if diagnostic.severity == "error"]
    assert (found.code, found.span.file, found.span.line, found.span.column) == (
        "relative-checkpoint",
        "job.yaml",
        4,
        13,
    )


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("env.A='x # y'", "x # y"),
        ("env.A=x # y", "x"),
        ("env.A=''", ""),
        ("env.A=$${HOME}", "${HOME}"),
        ("env.A='$${HOME}'", "${HOME}"),
    ],
)
def test_quotes_take_text_as_it_is(override: str, meant: str) -> None:
    """As docs/commands.md and the help of `--set` say."""
    loaded = load_text(Path("/none/job.yaml"), f"{HEAD}env: {{A: z}}\n", environ={}, overrides=(override,))
    assert loaded.spec is not None, loaded.diagnostics
    assert loaded.spec.env == {"A": meant}


@pytest.mark.parametrize(("environ", "meant"), [({}, {}), ({"A": "mine"}, {"A": "mine"})])
def test_an_override_without_a_value_is_none(environ: dict[str, str], meant: dict[str, str]) -> None:
    loaded = load_text(Path("/none/job.yaml"), f"{HEAD}env: {{A: z}}\n", environ=environ, overrides=("env.A=",))
    assert loaded.spec is not None, loaded.diagnostics
    assert loaded.spec.env == meant
