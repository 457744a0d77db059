"""A held shell, played by a real `sh`: every command gets what it was given, and says what it did."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobctl.jobspec.deploy.shell import Command
from jobctl.jobspec.deploy.transport import Result


class Shell:
    """An `sh` at the other end of three pipes."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["sh"], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)

    def run(self, *argv: str) -> Result:
        command, out, err = Command(argv), bytearray(), bytearray()
        streams = (self.process.stdin, self.process.stdout, self.process.stderr)
        assert all(streams)
        os.write(streams[0].fileno(), command.text)  # type: ignore[union-attr]
        while (result := command.result(out, err)) is None:
            for stream, data in ((streams[1], out), (streams[2], err)):
                os.set_blocking(stream.fileno(), False)  # type: ignore[union-attr]
                data += stream.read() or b""  # type: ignore[union-attr]
        return result


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    made = Shell()
    yield made
    out, err = made.process.communicate(timeout=10)
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
