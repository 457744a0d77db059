"""Files that a user has named: they are replaced whole."""

from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.store.files import replace_named


def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(b"earlier")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(OSError, match=r"'page\.html'$") as caught:
            replace_named(Path("page.html"), b"too much for it")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.errno, page.read_bytes(), list(tmp_path.iterdir())) == (errno.EFBIG, b"earlier", [page])


def test_a_file_that_is_replaced_keeps_its_rights_and_links_stay(tmp_path: Path) -> None:
    page, link = tmp_path / "pages" / "page.html", tmp_path / "link.html"
    page.parent.mkdir()
    link.symlink_to(page)
    page.write_bytes(b"earlier")
    page.chmod(0o640)
    replace_named(link, b"later")
    assert (link.is_symlink(), page.read_bytes(), page.stat().st_mode & 0o777) == (True, b"later", 0o640)
    assert [one.name for one in page.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_has_the_rights_that_the_user_gives_to_new_files(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        replace_named(tmp_path / "page.html", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == mode


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    replace_named(pipe, b"page")
    reader.join()
    assert (read, pipe.is_fifo()) == ([b"page"], True)
