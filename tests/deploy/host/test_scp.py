"""The other end of `scp` for images that have none: this machine's client talks to it, without anything in between."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.scripts import SCRIPTS, python

Copy = Callable[..., subprocess.CompletedProcess[str]]
MODES = {"plain": 0o640, "with ü and space": 0o755, "empty": 0o600}


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """Run `scp -O` in a folder, with `node:` as a machine that has Python and no scp."""
    scp = shutil.which("scp")
    if scp is None:
        (pytest.fail if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip)("there is no scp")
    image = tmp_path / "image"
    image.mkdir()
    (image / "python3").symlink_to(sys.executable)
    argv = SCRIPTS.argv("scp", "python3", python("scp_server"))
    client = tmp_path / "ssh"  # gets the command as its last argument
    client.write_text(f'#!/bin/sh\nfor last; do :; done\nPATH={image}\nexec /bin/{shlex.join(argv)} "$last"\n')
    client.chmod(0o755)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [scp, "-O", "-S", str(client), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of various modes, an inner one, and a link to a file."""
    made = tmp_path / "folder"
    (made / "inner").mkdir(parents=True)
    for name, mode in MODES.items():
        (made / "inner" / name).write_bytes(b"" if name == "empty" else os.urandom(200_000))
        (made / "inner" / name).chmod(mode)
        os.utime(made / "inner" / name, (1_000_000, 2_000_000))
    (made / "link").symlink_to("inner/plain")
    return made


@pytest.mark.parametrize("way", [("folder", "node:there"), ("node:{}/folder", "there")], ids=["there", "back"])
def test_a_folder_with_modes_and_times(copy: Copy, folder: Path, tmp_path: Path, way: tuple[str, str]) -> None:
    source, target = (word.format(tmp_path).replace("node:there", f"node:{tmp_path}/there") for word in way)
    done = copy("-r", "-p", source, target)
    assert (done.returncode, done.stderr) == (0, "")
    there = tmp_path / "there" / "inner"
    for name, mode in MODES.items():
        seen = (there / name).stat()
        assert (there / name).read_bytes() == (folder / "inner" / name).read_bytes()
        assert (stat.S_IMODE(seen.st_mode), seen.st_atime, seen.st_mtime) == (mode, 1_000_000, 2_000_000)
    assert (tmp_path / "there" / "link").read_bytes() == (folder / "inner" / "plain").read_bytes()


def test_several_files_by_a_pattern_of_the_other_shell(copy: Copy, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    done = copy(f"node:{folder}/inner/*pl*", "into")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path / "into")) == ["plain"]
    done = copy("folder/inner/plain", "folder/inner/empty", f"node:{tmp_path}/into")
    assert (done.returncode, sorted(os.listdir(tmp_path / "into"))) == (0, ["empty", "plain"])


def test_a_file_keeps_its_mode_if_it_is_there_and_otherwise_gets_what_the_mask_leaves(
    copy: Copy, folder: Path, tmp_path: Path
) -> None:
    (folder / "inner" / "plain").chmod(0o444)
    (tmp_path / "old").touch()
    (tmp_path / "old").chmod(0o700)
    for name in ("old", "new"):
        done = copy("folder/inner/plain", f"node:{tmp_path / name}")
        assert (done.returncode, done.stderr) == (0, "")
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("old", "new")] == [0o700, 0o444]


def test_what_cannot_be_done_is_told_and_the_rest_is_done(copy: Copy, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    done = copy(f"node:{folder}/nothing", f"node:{folder}", f"node:{folder}/inner/plain", "into")
    assert (done.returncode, os.listdir(tmp_path / "into")) == (1, ["plain"])
    assert f"scp: {folder}/nothing: No such file or directory\n" in done.stderr
    assert f"scp: {folder}: not a regular file\n" in done.stderr
    (folder / "inner" / "gone").symlink_to("nothing")
    done = copy("-r", f"node:{folder}", "some")
    assert (done.returncode, done.stderr) == (1, f"scp: {folder}/inner/gone: No such file or directory\n")
    assert sorted(os.listdir(tmp_path / "some" / "inner")) == sorted(MODES)
    (tmp_path / "into" / "empty").mkdir()
    done = copy("folder/inner/empty", "folder/inner/plain", f"node:{tmp_path}/into")
    assert (done.returncode, "Is a directory" in done.stderr) == (1, True)
    assert (tmp_path / "into" / "plain").read_bytes() == (folder / "inner" / "plain").read_bytes()
    done = copy("folder/inner/plain", "node:/dev/full")
    assert (done.returncode, done.stderr) == (1, "scp: /dev/full: No space left on device\n")
    for words in (("-r", "folder", f"node:{folder}/inner/plain"), ("folder/inner/plain", f"node:{tmp_path}/no/way")):
        done = copy(*words)
        assert done.returncode == 1
        assert done.stderr.startswith("scp: ")
    done = copy("folder/inner/plain", "folder/inner/empty", f"node:{folder}/inner/plain")
    assert (done.returncode, f"{folder}/inner/plain: not a folder" in done.stderr) == (1, True)


@pytest.mark.parametrize("name", [b"../outside", b"in/side", b"..", b""])
def test_no_name_leads_elsewhere(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "into").mkdir()
    argv = [sys.executable, "-c", python("scp_server"), "-t", str(tmp_path / "into")]
    said = subprocess.run(argv, input=b"C0644 1 " + name + b"\n", capture_output=True, timeout=60, check=False)
    assert (said.returncode, said.stdout) == (1, b"\0\1scp: " + name + b": unexpected name\n")
    assert (os.listdir(tmp_path), os.listdir(tmp_path / "into")) == (["into"], [])
