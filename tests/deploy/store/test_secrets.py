"""Values of secrets: where they are read, and what is kept of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store.secrets import SecretMissing, digests, own_key, read_secrets, readable_secrets
from jobctl.jobspec.spec.model import Secret
from jobctl.jobspec.spec.reading import source


def test_secrets_come_from_variables_and_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n\n")
    secrets = [Secret(name="A"), Secret(name="B", env="OTHER"), Secret(name="C", file="token")]
    values = read_secrets(secrets, tmp_path, {"A": "a ", "B": "no", "OTHER": "b"})
    assert values == {"A": "a ", "B": "b", "C": "from a file"}


def test_a_secret_is_the_same_from_a_file_of_an_editor_on_windows(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xef\xbb\xbffrom a file\r\n")
    assert read_secrets([Secret(name="A", file="token")], tmp_path, {}) == {"A": "from a file"}


@pytest.mark.parametrize("read", [read_secrets, readable_secrets])
def test_variables_that_the_environment_lacks_come_from_the_file_beside_the_spec(read: Any, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / ".env").write_text("A=from a file\nB=b\nOTHER=$HOST!\nNOBODY=asked\n")
    (tmp_path / ".env").write_text("B=of another project\n")
    secrets = [Secret(name="A"), Secret(name="B"), Secret(name="C", env="OTHER")]
    values = read(secrets, folder, {"A": "", "HOST": "me"})
    assert values == {"A": "", "B": "b", "C": "me!"}


@pytest.mark.parametrize("secret", [Secret(name="A"), Secret(name="A", env="B"), Secret(name="A", file="nowhere")])
def test_a_secret_that_is_missing_is_named(secret: Secret, tmp_path: Path) -> None:
    environ = {"OTHER": "hush"}
    with pytest.raises(SecretMissing, match="secret `A`") as missing:
        read_secrets([secret], tmp_path, environ)
    assert "hush" not in str(missing.value) + missing.value.hint
    assert readable_secrets([secret, Secret(name="OTHER")], tmp_path, environ) == environ


def test_a_digest_tells_values_apart_with_the_key_only(tmp_path: Path) -> None:
    key = own_key(tmp_path / "key")
    assert own_key(tmp_path / "key") == key
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    same = {"A": "x", "B": "x"}
    found = digests(same, key)
    assert found == digests(same, key)
    assert found != digests({**same, "A": "y"}, key)
    assert found["A"] != found["B"]
    assert found["A"] != digests(same, b"another key")["A"]


def test_a_secret_that_a_pipe_gives_once_is_the_same_each_time(tmp_path: Path) -> None:
    """A command reads secrets twice: for what has changed, and for what it sends."""
    reading, writing = os.pipe()
    os.write(writing, b"hunter2\n")
    os.close(writing)
    secret = Secret(name="TOKEN", file=f"/dev/fd/{reading}")
    try:
        assert [read_secrets([secret], tmp_path, {}) for _ in range(2)] == 2 * [{"TOKEN": "hunter2"}]
    finally:
        os.close(reading)


def test_a_named_pipe_into_which_nobody_writes_is_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PIPE_WAIT", 0.01)
    os.mkfifo(tmp_path / "token")
    with pytest.raises(SecretMissing, match="it is a pipe, and nobody has written into it"):
        read_secrets([Secret(name="TOKEN", file="token")], tmp_path, {})
