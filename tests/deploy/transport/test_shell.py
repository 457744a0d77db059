"""A held shell, played by a real `sh`: every command gets what it was given, and says what it did."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobctl.jobspec.deploy.transport.base import Result, quote_for_login
from jobctl.jobspec.deploy.transport.held_shell import HeldCommand, Login
from tests.tools.waiting import PATIENCE


class Shell:
    """An `sh` at the other end of three pipes."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["sh"], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)

    def run(self, *argv: str) -> Result:
        command, out, err = HeldCommand(argv), bytearray(), bytearray()
        streams = (self.process.stdin, self.process.stdout, self.process.stderr)
        assert all(streams)
        os.write(streams[0].fileno(), os.fsencode(command.text))  # type: ignore[union-attr]
        while (result := command.result(out, err)) is None:
            for stream, data in ((streams[1], out), (streams[2], err)):
                os.set_blocking(stream.fileno(), False)  # type: ignore[union-attr]
                data += stream.read() or b""  # type: ignore[union-attr]
        return result


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    made = Shell()
    yield made
    out, err = made.process.communicate(timeout=PATIENCE)
    assert (made.process.returncode, out, err) == (0, b"", b"")


def test_commands_follow_each_other(shell: Shell) -> None:
    assert shell.run("echo", "one") == Result(0, b"one\n", b"")
    assert shell.run("sh", "-c", "echo two >&2; exit 3") == Result(3, b"", b"two\n")
    assert shell.run("sh", "-c", "kill -9 $$").code == 137
    assert shell.run("no-such-command-here").code == 127
    assert shell.run("cat") == Result(0, b"", b"")  # the shell's own input is not the command's
    assert shell.run("sh", "-c", "printf 'no newline'") == Result(0, b"no newline", b"")
    assert shell.run("sh", "-c", "cd /; umask 077; exit 5").code == 5
    assert shell.run("pwd").out.decode().strip() == os.getcwd()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.binary(max_size=40).map(lambda raw: os.fsdecode(raw.replace(b"\0", b"")))))
def test_what_goes_in_comes_out(shell: Shell, words: list[str]) -> None:
    script = "for word do printf '%s\\0' \"$word\"; printf '%s\\0' \"$word\" >&2; done"
    expected = b"".join(os.fsencode(word) + b"\0" for word in words)
    assert shell.run("sh", "-c", script, "sh", *words) == Result(0, expected, expected)


WORDS = 'for word do printf "%s\\0" "$word"; done'
# What POSIX shells, csh and fish read alike: the first knows no escapes in quotes, csh neither `!` nor line breaks there.
EACH = re.compile(r"""exec( [\w./:=@%+-]+| '([^'\\!\n]|\\0)*')+""")


@settings(max_examples=25)
@given(words=st.lists(st.binary(max_size=40).map(lambda raw: os.fsdecode(raw.replace(b"\0", b"")))))
@example(["!", "'\\\n\n", "\\0101 %s \\c", "$HOME `id` *", os.fsdecode(b"\xff!")])
def test_each_shell_of_a_login_reads_what_was_meant(words: list[str]) -> None:
    text = quote_for_login(["sh", "-c", f"{WORDS}\n", "sh", *words])
    assert EACH.fullmatch(text)
    for shell in {shutil.which(name) for name in ("sh", "bash", "dash", "tcsh")} - {None}:
        done = subprocess.run([str(shell), "-c", os.fsencode(text)], capture_output=True, check=True)
        assert done.stdout == b"".join(os.fsencode(word) + b"\0" for word in words)


def test_a_login_is_sent_a_simple_command_as_it_is() -> None:
    assert quote_for_login(["cat", "a b", "it's"]) == """exec cat 'a b' 'it'"'"'s'"""


@pytest.mark.parametrize("word", ["a\nb", "wait!", "a\\\\b", "ends\\"])
def test_a_login_is_sent_no_sign_that_its_shell_may_read_in_another_way(word: str) -> None:
    """A backslash in quotes is one for csh, and for fish it may quote what follows."""
    text = quote_for_login(["printf", "%s", word])
    assert EACH.fullmatch(text)
    assert subprocess.run(["sh", "-c", text], capture_output=True, check=True).stdout == word.encode()


def past_login(login: Login, stream: bytes, chunks: Iterator[int]) -> tuple[bytes, bytes]:
    """Read from a stream that gives as much as it likes at a time; return what the login said, and what is left."""
    said = b""
    while missing := login.missing(said):
        count = min(missing, next(chunks))
        said, stream = said + stream[:count], stream[count:]
    return said, stream


@given(
    noise=st.binary(max_size=80) | st.just(b"welcome\n"),
    own=st.binary(max_size=80),
    sizes=st.lists(st.integers(1, 40), min_size=1),
)
def test_what_a_login_prints_is_none_of_the_commands(noise: bytes, own: bytes, sizes: list[int]) -> None:
    login = Login()
    script = "cat; printf own >&2"
    done = subprocess.run(login.argv(["sh", "-c", script]), input=own, capture_output=True, check=True)
    said, left = past_login(login, noise + done.stdout, itertools.cycle(sizes))
    assert (said[: len(noise)], left) == (noise, own)
    assert past_login(login, noise + done.stderr, itertools.cycle(sizes))[1] == b"own"


def test_a_command_with_input_is_told_from_what_a_login_prints_after_it() -> None:
    command = HeldCommand(["sh", "-c", "cat; echo err >&2; exit 3"], reads=True)
    forced = ["sh", "-c", f"{command.text}\necho bye; echo bye >&2; exit 0"]
    done = subprocess.run(forced, input=b"in", capture_output=True, check=True)
    assert command.result(bytearray(done.stdout), bytearray(done.stderr)) == Result(3, b"in", b"err\n")


def test_a_command_goes_on_until_both_marks_are_there() -> None:
    command = HeldCommand(["sh", "-c", "echo out; echo err >&2"])
    done = subprocess.run(["sh"], input=command.text.encode(), capture_output=True, check=True)
    out, err = bytearray(), bytearray()
    for byte in done.stdout:
        assert command.result(out, err) is None
        out.append(byte)
    for byte in done.stderr:
        assert command.result(out, err) is None
        err.append(byte)
    assert command.result(out, err) == Result(0, b"out\n", b"err\n")
