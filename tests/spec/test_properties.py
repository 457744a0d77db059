"""Properties: the parser crashes on nothing, spans lie in the file, and values arrive byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from jobctl.jobspec.spec.diagnostics import Span, render_text
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.spec.reading.interpolate import BadInterpolation, interpolate
from jobctl.jobspec.spec.reading.source import split_lines
from tests.tools.examples import examples

PATH = Path("/none/job.yaml")
HEAD = "name: demo\nframework: torch\nscript: train.py\n"
QUICK = examples(100)

# Any text a file can hold and a process can receive.
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=60)
# Text that looks like YAML more often than not.
yamlish = st.lists(
    st.sampled_from(
        ["name", "nodes", "env", "recovery", "rules", "volumes", "secrets", "devices", "<<", "&a ", "*a", "!x ", "? "]
        + [": ", "- ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ",", "'", '"', "#", "|", ">", "---\n", "...\n", "%"]
        + ["${A}", "${A:-", "${A:?", "}", "$$", "$", "4", "2:4", "gpu:8", "/a:/b", "10m", "off", "~", "null", "é", "\t"]
    ),
    max_size=40,
).map("".join)


def escaped(value: str) -> str:
    return '"' + "".join(f"\\U{ord(character):08x}" for character in value.replace("$", "$$")) + '"'


def inside(span: Span, text: str) -> bool:
    """Say whether a span lies in the file, one character past the end of its line at most."""
    lines = split_lines(text)
    if not 1 <= span.line <= span.end_line <= len(lines) or span.column < 1:
        return False
    ends_after = (span.end_line, span.end_column) >= (span.line, span.column)
    return (
        ends_after
        and span.column <= len(lines[span.line - 1]) + 1
        and span.end_column <= len(lines[span.end_line - 1]) + 2
    )


@QUICK
@given(st.one_of(yamlish, texts, yamlish.map(HEAD.__add__)))
@example("a: &x {<<: *x}")
@example("? [a]\n: b")
@example("\ufeff")
@example("env:\n  <<: 3\nenv:\n")
@example("secrets: {x-a: 1, 1: {a: b}}")
@example("--- |\n a\n")
def test_no_text_crashes_the_parser(text: str) -> None:
    loaded = load_text(PATH, text, environ={"A": "1"})
    assert (loaded.spec is None) == any(d.severity == "error" for d in loaded.diagnostics)
    for diagnostic in loaded.diagnostics:
        assert inside(diagnostic.span, text), (diagnostic, text)
        assert render_text(diagnostic, split_lines(text))
        json.dumps(diagnostic.to_json())
    places = [diagnostic.span[1:3] for diagnostic in loaded.diagnostics]
    assert places == sorted(places)


words = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
trees = st.recursive(
    words,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(
                    [
                        "dir",
                        "min",
                        "max",
                        "kind",
                        "count",
                        "ids",
                        "servers",
                        "trainers",
                        "endpoints",
                        "managed",
                        "rules",
                    ]
                    + ["do", "log", "exit", "env", "file", "source", "target", "type", "soft", "hard", "A", "x-y"]
                ),
                texts,
            ),
            below,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
keys = st.sampled_from(
    ["name", "framework", "mode", "nodes", "devices", "ps", "rendezvous", "etcd", "checkpoint", "recovery", "volumes"]
    + ["outputs", "env", "env_file", "secrets", "code", "resources", "network", "container", "stop_grace_period"]
    + ["torch", "paddle", "mindspore", "kubernetes", "args", "command", "setup", "version", "image", "pull"]
)


@QUICK
@given(st.dictionaries(keys, trees, max_size=5))
def test_no_tree_of_values_crashes_the_parser(tree: dict[str, object]) -> None:
    base = {"name": "demo", "framework": "torch", "script": "train.py"}
    text = yaml.safe_dump({**base, **tree}, allow_unicode=True, width=10_000)
    loaded = load_text(PATH, text, environ={})
    for diagnostic in loaded.diagnostics:
        assert inside(diagnostic.span, text), (diagnostic, text)


@QUICK
@given(texts)
def test_a_doubled_dollar_is_a_dollar(text: str) -> None:
    assert interpolate(text.replace("$", "$$"), {}, lambda *_: None) == text


@QUICK
@given(
    st.lists(st.sampled_from(["$", "{", "}", "A", "1", ":", "-", "?", "+", " ", "$$", "${", "${A:-", "é"])).map("".join)
)
def test_interpolation_replaces_or_refuses(text: str) -> None:
    try:
        interpolate(text, {"A": "a"}, lambda *_: None)
        return
    except BadInterpolation as error:
        bad = error
    assert text[bad.at :].startswith(bad.text[:1])


@QUICK
@given(
    st.lists(texts, max_size=4),
    st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), texts, max_size=3),
)
def test_values_arrive_byte_for_byte(args: list[str], env: dict[str, str]) -> None:
    """What is written, each character as an escape, is what the spec says."""
    items = ", ".join(escaped(value) for value in args)
    pairs = ", ".join(f"{name}: {escaped(value)}" for name, value in env.items())
    text = HEAD + f"args: [{items}]\nenv: {{{pairs}}}"
    loaded = load_text(PATH, text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    assert (loaded.spec.args, loaded.spec.env) == (tuple(args), env)


@QUICK
@given(
    st.one_of(texts, st.lists(st.sampled_from(list("ab01[]-,@:= #\n.") + ["slots=", "spare", "addr="])).map("".join))
)
def test_no_text_crashes_the_hosts_file(text: str) -> None:
    loaded = parse_hosts(text, "hosts.txt")
    for diagnostic in loaded.diagnostics:
        assert inside(diagnostic.span, text), (diagnostic, text)
    assert len({host.name for host in loaded.hosts}) == len(loaded.hosts)
