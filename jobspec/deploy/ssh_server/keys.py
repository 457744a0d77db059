"""The keys of a job's SSH server and of its only user, made at the first use and removed when the job is down."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
from collections.abc import Iterator
from pathlib import Path

import paramiko

from jobctl.jobspec.deploy.store.files import write_atomic
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The server's key and the user's. `user_file` and `known_hosts` are what a client reads."""

    host: paramiko.PKey
    user: paramiko.PKey
    user_file: Path
    known_hosts: Path


def alias(job: str, node: int) -> str:
    """Return what a node is called in the configuration of SSH clients."""
    return f"jobctl-{job}-{node}"


def keys_of(job: JobDir) -> Keys:
    """Return the keys of a job, made if there are none; only this user may read them."""
    job.create()
    with _alone(job.root):
        host, user = (_key(path) for path in (job.ssh_host_key, job.ssh_user_key))
        line = f"{alias(job.name, 0)[:-1]}* {host.get_name()} {host.get_base64()}\n".encode()
        if not job.known_hosts.exists() or job.known_hosts.read_bytes() != line:
            write_atomic(job.known_hosts, line, 0o600)
    return Keys(host, user, job.ssh_user_key, job.known_hosts)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Keep other commands from making keys at the same time: an editor opens several connections at once."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _key(path: Path) -> paramiko.PKey:
    if not path.exists() or not path.stat().st_size:  # a power cut may have emptied it
        text = io.StringIO()
        paramiko.ECDSAKey.generate().write_private_key(text)
        write_atomic(path, text.getvalue().encode(), 0o600, sync=True)
    return paramiko.ECDSAKey.from_private_key_file(str(path))
