"""Both quotings, tried on any text through those who read it: a real shell, a YAML parser, and Compose."""

from __future__ import annotations

import csv
import json
import subprocess

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobctl.jobspec.render.errors import RenderError
from jobctl.jobspec.render.quote import MAX_ARGUMENT_BYTES, Rendered, mount_option, quote_compose, quote_shell, visible
from tests.render.hostile import VALUES

# All that a file, an argument or a variable can hold; surrogates only where bytes are meant.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
BYTES = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), st.sampled_from("\udc80\udcff"))
)


def through_shell(words: list[str]) -> list[str]:
    script = "env printf '%s\\0' x " + " ".join(map(quote_shell, words))
    done = subprocess.run(["sh"], input=script.encode(errors="surrogateescape"), capture_output=True, check=True)
    return done.stdout.decode(errors="surrogateescape").split("\0")[1:-1]


@settings(max_examples=60)
@given(st.lists(BYTES, max_size=8))
def test_shell_reads_what_was_quoted(words: list[str]) -> None:
    # Bytes that happen to form UTF-8 are that character: compare what a process gets.
    assert [w.encode(errors="surrogateescape") for w in through_shell(words)] == [
        w.encode(errors="surrogateescape") for w in words
    ]


@settings(max_examples=300)
@given(TEXT)
def test_yaml_reads_what_was_quoted(text: str) -> None:
    document = f"key: {quote_compose(text)}\nlist: {quote_compose((text, text))}\n"
    quoted = yaml.safe_load(document.encode())
    assert quoted == {"key": text.replace("$", "$$"), "list": [text.replace("$", "$$")] * 2}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXT, min_size=10, max_size=40))
def test_compose_reads_what_was_quoted(compose: tuple[str, ...], texts: list[str]) -> None:
    lines = ["name: test", "services:", "  one:", "    image: x", "    command:"]
    lines += [f"      - {quote_compose('_' + text)}" for text in texts]
    done = subprocess.run(
        [*compose, "--file", "-", "config", "--format", "json"],
        input="\n".join(lines).encode(),
        capture_output=True,
        check=True,
    )
    found = json.loads(done.stdout.replace(b"$$", b"$"))["services"]["one"]["command"]
    assert found == ["_" + text for text in texts]


@pytest.mark.parametrize("value", VALUES)
def test_one_line(value: str) -> None:
    """No quoted value breaks out of its line, by whatever a reader may take for a line break."""
    assert len(quote_compose(value).splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("resnet", '"resnet"'),
        ("", '""'),
        ("${X} $$", '"$${X} $$$$"'),
        ("\x85\u2028\ufeff\x7f", '"\\u0085\\u2028\\ufeff\\u007f"'),
        ("é😀", '"é😀"'),
        (True, "true"),
        (7, "7"),
        (-1, "-1"),
        (7.5, "7.5"),
        (("a", "b c"), '["a", "b c"]'),
        ((), "[]"),
        (Rendered("${X}"), "${X}"),
    ],
)
def test_compose_text(value: object, expected: str) -> None:
    assert quote_compose(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("resnet", "resnet"),
        ("", "''"),
        ("it's", "'it'\"'\"'s'"),
        ("$X", "'$X'"),
        (7, "7"),
        (Rendered("$X"), "$X"),
    ],
)
def test_shell_text(value: object, expected: str) -> None:
    assert quote_shell(value) == expected


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1))
def test_csv_reads_what_was_quoted(path: str) -> None:
    (row,) = csv.reader([mount_option((("type", "bind"), ("source", path), ("readonly", "")))], strict=True)
    assert row == ["type=bind", f"source={path}", "readonly"]


def test_what_nothing_can_hold() -> None:
    found = []
    for quote, value in (
        (quote_shell, "a\0"),
        (quote_compose, "b\0"),
        (quote_compose, "c\udcff"),
        (_mount, "d\r\n"),
    ):
        with pytest.raises(RenderError) as caught:
            quote(value)
        found.append((caught.value.code, str(caught.value)))
    assert found == [
        ("nul-character", "no argument or variable can hold the character NUL: 'a\\x00'"),
        ("nul-character", "no argument or variable can hold the character NUL: 'b\\x00'"),
        ("not-utf-8", "a compose file cannot hold text that is not UTF-8: 'c\\udcff'"),
        ("unmountable-path", "docker cannot mount a path with a carriage return: 'source=d\\r\\n'"),
    ]


def test_as_long_as_linux_allows() -> None:
    """One byte more, and the kernel refuses to start the process."""
    longest = "é" + "x" * (MAX_ARGUMENT_BYTES - 2)
    assert len(through_shell([longest])[0].encode()) == MAX_ARGUMENT_BYTES
    for quote in (quote_shell, quote_compose):
        with pytest.raises(RenderError, match="longer than 131071 bytes"):
            quote(longest + "x")


def _mount(path: str) -> str:
    return mount_option((("source", path),))


def test_no_value_is_quoted_by_accident() -> None:
    with pytest.raises(TypeError, match="no YAML for None"):
        quote_compose(None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\tb\nc é😀", "a\tb\nc é😀"),
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;x\x1b\\end", "red end"),
        ("\0 \r \x1b \x7f \x85", "␀ ␍ ␛ ␡ \\u0085"),
        ("\u202eesrever\u2066 \ud800", "\\u202eesrever\\u2066 \\ud800"),
        (7.5, "7.5"),
    ],
)
def test_a_reader_sees_all_of_it(value: object, expected: str) -> None:
    assert visible(value) == expected
