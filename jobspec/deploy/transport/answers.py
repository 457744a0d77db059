"""What a host may say in one answer: a broken one that prints without end must not fill this machine's memory."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager

from jobctl.jobspec.deploy.model.errors import HostError

MAX_ANSWER_BYTES = 256 << 20  # bytes: the names of two million files of data, and far more than any other answer has
LOGIN = 1 << 20  # bytes before the first command runs: a `.bashrc` prints a greeting
MAX_LINE_BYTES = 16 << 20  # bytes of one line of a host that reports again and again
# What `tarfile` raises for what is no archive: for numbers that are below zero or too large, and for headers of headers.
NO_ARCHIVE = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)


def bound(host: str, what: str, size: int, most: int | None = None) -> None:
    """Raise HostError if `what` has said more than `most` bytes (else MAX_ANSWER_BYTES)."""
    most = MAX_ANSWER_BYTES if most is None else most
    if size > most:
        message = f"{what} has printed more than {most >> 20} MiB, and goes on"
        raise HostError(host, "answer-too-long", message, "look at what prints there; jobctl has ended it")


@contextmanager
def readable_answer(host: str, what: str) -> Iterator[None]:
    """Have an answer that is not what a script prints be an error of its host; `what` completes "cannot …" there."""
    try:
        yield
    except ValueError as error:
        hint = "does something else print there, such as a `.bashrc`?"
        raise HostError(host, "command-failed", f"cannot {what}: it answers something else", hint) from error
