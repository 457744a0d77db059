"""Files that nobody should load: a clear error, in under a second and under 200 MB, each in a process of its own."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jobctl.jobspec.spec.reading import source

LIBC = ctypes.CDLL(None)
HEAD = b"name: demo\nframework: torch\nscript: train.py\n"
MEGABYTES = 200


def bomb(width: int, depth: int) -> bytes:
    lines = [b"x-0: &a0 [" + b", ".join([b"x"] * width) + b"]"]
    for level in range(1, depth):
        lines.append(b"x-%d: &a%d [" % (level, level) + b", ".join([b"*a%d" % (level - 1)] * width) + b"]")
    return HEAD + b"\n".join(lines)


def nested_aliases() -> bytes:
    """Each anchor 50 levels deep around the one before: shallow to the parser, thousands of levels to the reader."""
    lines = [b"x-0: &a0 [x]"]
    for level in range(1, 200):
        lines.append(b"x-%d: &a%d " % (level, level) + b"[" * 50 + b"*a%d" % (level - 1) + b"]" * 50)
    return HEAD + b"\n".join(lines)


FILES: dict[str, tuple[bytes, str]] = {
    "alias bomb": (bomb(10, 12), "too-many-nodes"),
    "wide alias bomb": (bomb(2000, 3), "too-many-nodes"),
    "alias bomb of merges": (
        HEAD
        + b"x-a: &a {"
        + b", ".join(b"k%d: 1" % i for i in range(900))
        + b"}\nenv:\n  <<: ["
        + b"*a, " * 900
        + b"]\n",
        "too-many-nodes",
    ),
    "aliases nested deeply": (nested_aliases(), "too-deep"),
    "10 MB": (HEAD + b"x-a: " + b"a" * 10_000_000, "too-large"),
    "10 MB of list": (HEAD + b"args:\n" + b"- a\n" * 2_500_000, "too-large"),
    "1 MB of brackets": (b"[" * 1_000_000, "too-deep"),
    "1 MB of list": (HEAD + b"args:\n" + b"- a\n" * 250_000, "too-many-nodes"),
    "many mistakes": (HEAD + b"".join(b"k%d: 1\n" % i for i in range(9_900)), "more-mistakes"),
    "many unset variables": (
        HEAD + b"env:\n" + b"".join(b"  K%d:\n" % i for i in range(9_900)) + b"nodes: x\n",
        "wrong-type",
    ),
    "many mounts at one place": (HEAD + b"volumes: [" + b"/a:/b, " * 5_000 + b"]", "hidden-mount"),
    "many repeated keys": (HEAD + b"a: 1\n" * 9_900, "repeated-key"),
    "binary": (bytes(range(256)) * 100, "not-text"),
    "NUL": (HEAD + b"image: a\0b\n", "not-text"),
    "UTF-16": (HEAD.decode().encode("utf-16"), "not-text"),
    "nested braces": (HEAD + b"env: {A: '" + b"${A:-" * 50_000 + b"'}", "bad-interpolation"),
    "empty": (b"", "empty-spec"),
    "only blanks": (b" \n\n  \n", "empty-spec"),
    "a NUL in a quoted value": (HEAD + b'image: "a\\0b"\n', "nul-character"),
    "ELF": (b"\x7fELF\x02\x01\x01" + b"\0" * 100, "not-text"),
}


def bound_by_permissions() -> None:
    """Take from root what lets it read everything (prctl(2): PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)."""
    if os.geteuid() == 0:
        for capability in (1, 2):
            LIBC.prctl(24, capability, 0, 0, 0)


def codes(path: Path) -> tuple[list[str], float, int]:
    """Return the codes of `jobctl validate`, the CPU time in seconds that it took, and its memory in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=bound_by_permissions,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    found = [diagnostic["code"] for diagnostic in json.loads(done.stdout)["diagnostics"]]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found, seconds, int(done.stderr.strip().rsplit("\n", 1)[-1]) // 1024


# CPU time instead of wall time, which says more of the machine than of the program.
MEASURED = """
import sys
from jobctl.main import main
try:
    main(["validate", sys.argv[1], "-o", "json"])
finally:
    print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1], file=sys.stderr)
"""


@pytest.mark.parametrize("name", FILES)
def test_hostile_files(name: str, tmp_path: Path) -> None:
    content, code = FILES[name]
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    found, seconds, megabytes = codes(path)
    assert code in found
    assert seconds < 3  # under one second on an idle machine (docs/performance.md); a quadratic loop takes minutes
    assert megabytes < MEGABYTES


def deny(path: Path) -> None:
    path.write_bytes(HEAD)
    path.chmod(0)


PATHS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a directory": (Path.mkdir, "not-a-file"),
    "nothing": (lambda path: None, "no-such-file"),
    "a link to itself": (lambda path: path.symlink_to(path), "unreadable"),
    "no permission": (deny, "unreadable"),
}


@pytest.mark.parametrize("name", PATHS)
def test_hostile_paths(name: str, tmp_path: Path) -> None:
    make, code = PATHS[name]
    path = tmp_path / "job.yaml"
    make(path)
    assert codes(path)[0] == [code]


def test_a_pipe_into_which_nobody_writes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PIPE_WAIT", 0.01)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(source.BadSource) as error:
        source.read_text(tmp_path / "pipe", "pipe")
    (found,) = error.value.diagnostics
    assert (found.code, "nobody has written into it" in found.message) == ("unreadable", True)


def test_a_pipe_that_somebody_has_open_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `jobctl validate <(command)` has one; a command may be slow."""
    asked = threading.Event()
    first_byte = source._first_byte

    def in_vain(pipe: int) -> bytes:
        found = first_byte(pipe)
        asked.set()
        return found

    def write() -> None:
        asked.wait(30)
        os.write(writer, b"name: small")
        os.close(writer)

    monkeypatch.setattr(source, "PIPE_WAIT", 0.01)
    monkeypatch.setattr(source, "_first_byte", in_vain)
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    writing = threading.Thread(target=write)
    writing.start()
    assert source.read_text(tmp_path / "pipe", "pipe") == "name: small"
    writing.join(30)


def test_endless_device() -> None:
    assert codes(Path("/dev/zero"))[0] in (["too-large"], ["not-text"], ["not-a-file"])
