"""How much a host may say in one answer: a broken one that prints without end must not fill this machine's memory."""

from __future__ import annotations

from jobctl.jobspec.deploy.model.errors import HostError

ANSWER = 256 << 20  # bytes: the names of two million files of data, and far more than any other answer has
LOGIN = 1 << 20  # bytes before the first command runs: a `.bashrc` prints a greeting
LINE = 16 << 20  # bytes of one line of a host that reports again and again


def bound(host: str, what: str, size: int, most: int | None = None) -> None:
    """Raise HostError if `what` has said more than `most` bytes (else ANSWER)."""
    most = ANSWER if most is None else most
    if size > most:
        message = f"{what} has printed more than {most >> 20} MiB, and goes on"
        raise HostError(host, "answer-too-long", message, "look at what prints there; jobctl has ended it")
