"""Values of secrets: read at `up`, kept in memory, written to one 0600 file beside the launcher."""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.store.files import write_atomic
from jobctl.jobspec.spec.reading.env_files import dot_env
from jobctl.jobspec.spec.reading.source import MAX_BYTES, SilentPipe, read_once
from jobctl.jobspec.spec.scalars import is_text

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Secret


class SecretMissing(Exception):
    """A secret that cannot be read; its message names it and never its value."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def read_secrets(secrets: Sequence[Secret], directory: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of `secrets` by name. Raises SecretMissing.

    Files are relative to the spec's `directory`. As in Compose, `.env` there has the variables that `environ` lacks.
    """
    environ = _with_dot_env(secrets, directory, environ)
    return {secret.name: _checked(secret, _read(secret, directory, environ)) for secret in secrets}


def readable_secrets(secrets: Sequence[Secret], directory: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of those of `secrets` that can be read here."""
    found = {}
    environ = _with_dot_env(secrets, directory, environ)
    for secret in secrets:
        with contextlib.suppress(SecretMissing):
            found[secret.name] = _checked(secret, _read(secret, directory, environ))
    return found


def _with_dot_env(secrets: Sequence[Secret], directory: Path, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables to read secrets from. Loading the spec tells what is wrong with `.env`."""
    wanted = {secret.env or secret.name for secret in secrets if secret.file is None}
    return environ if wanted <= environ.keys() else {**dot_env(directory, environ)[0], **environ}


def _read(secret: Secret, directory: Path, environ: Mapping[str, str]) -> str:
    if secret.file is not None:
        return _read_file(secret, directory / os.path.expanduser(secret.file))
    name = secret.env or secret.name
    if name not in environ:
        raise SecretMissing(
            f"secret `{secret.name}`: the environment has no `{name}`",
            f"export {name}=… or write it into `.env` beside the spec, then `up` again",
        )
    return environ[name]


def _read_file(secret: Secret, path: Path) -> str:
    """Return the text of a file; of a pipe, which gives it once, the same each time."""
    hint = "make the file, readable by you alone"
    try:
        content = read_once(path)
        if len(content) <= MAX_BYTES:
            return content.decode("utf-8-sig").replace("\r\n", "\n").rstrip("\n")
        reason = f"it is larger than {MAX_BYTES >> 20} MiB"
    except SilentPipe:
        reason, hint = "it is a pipe, and nobody has written into it", "name a file, or start what writes first"
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "not UTF-8 text"
    raise SecretMissing(f"secret `{secret.name}`: cannot read {path}: {reason}", hint)


def _checked(secret: Secret, value: str) -> str:
    """Return the value. Raises SecretMissing where no process could get it."""
    if "\0" in value or not is_text(value):
        what = "holds a NUL character" if "\0" in value else "is not UTF-8 text"
        raise SecretMissing(f"secret `{secret.name}`: its value {what}", "processes get it as text, in a variable")
    return value


def digests(values: Mapping[str, str], key: bytes) -> dict[str, str]:
    """Return what tells a secret's value from another to the owner of the `key`, and nothing to anyone else."""
    return {name: hmac.digest(key, f"{name}\0{value}".encode(), "sha256").hex() for name, value in values.items()}


def own_key(path: Path) -> bytes:
    """Return the key in the 0600 file `path`, which is made if there is none, or one that a power cut has emptied."""
    if not path.exists() or not path.stat().st_size:
        write_atomic(path, token_bytes(32), 0o600, sync=True)
    return path.read_bytes()
