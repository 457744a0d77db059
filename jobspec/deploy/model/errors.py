"""What can go wrong while the world is changed, in words a user can act on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Codes of a host that does not answer, whether it never did or was lost: a HostError of such a code may be gone in a moment.
UNHEARD = frozenset({"no-route", "unreachable", "connection-refused", "lost", "silent"})
# Codes of an engine that does not answer, and may be back in a moment
ENGINE_AWAY_CODES = ("docker-down", "engine-failed")


class DeployError(Exception):
    """A step that could not be carried out: the message says what and where, `hint` the remedy.

    `code` is stable, for tools and for docs/check.md; it is None for an error that has none of its own. `failures` says of
    single hosts why they did not do their part.
    """

    code: str | None = None
    failures: Mapping[str, DeployError] = MappingProxyType({})

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def may_be_gone(error: DeployError) -> bool:
    """Say whether there was no host that answered, or not even its name any more."""
    return error.code in (*UNHEARD, "unknown-name")


def is_unanswered(error: DeployError) -> bool:
    """Say whether a host, or its engine, only did not answer: it may in a moment."""
    return error.code in (*UNHEARD, *ENGINE_AWAY_CODES)


class DeployWarning(UserWarning):
    """Something wrong with what is on this machine that keeps nothing from being done; the message says where."""


class NothingToEnter(DeployError):
    """Nothing of the node or service runs that a command could be run in; it may begin soon."""


class PortClosed(DeployError):
    """Nothing listens at a TCP port; it may begin to soon."""


class CannotRun(DeployError):
    """A command that a user gave cannot be run: `exit_code` is 127 if there is none, 126 if it may not, as shells say."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class HostError(DeployError):
    """Something that one host cannot do."""

    code: str

    def __init__(self, host: str, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(f"{host}: {message}", hint)
        self.host, self.code, self.cause = host, code, message


class NotPrepared(HostError):
    """A host lacks files of the job that `up` has sent, or could not send, and that a node needs there."""

    def __init__(self, host: str, message: str) -> None:
        super().__init__(host, "not-prepared", message, "`jobctl up` sends what is missing")


class NotCollected(HostError):
    """A host keeps logs or outputs that could not be fetched. Where `down` raises it, the job has ended there."""

    def __init__(self, host: str, message: str, hint: str | None = None) -> None:
        super().__init__(host, "not-collected", message, hint)


class OnAnotherMachine(HostError):
    """A job of target `local`, or of `localhost`, that another machine runs, which shares a folder with this one.

    Nobody can look there. `what` runs there, and `folder` is what both machines have.
    """

    def __init__(
        self, host: str, machine: str, file: str, what: str = "processes", folder: str = "state directory"
    ) -> None:
        cause = f"the job's {what} are on machine `{machine}`, which has the same {folder}"
        hint = f"run the command there; if that machine no longer exists, `rm {file}`"
        super().__init__(host, "on-another-machine", cause, hint)


class UnlistedHost(HostError):
    """A host that a job is on, and that nobody asked: it is not among those that this command knows."""

    def __init__(self, host: str, message: str, hint: str) -> None:
        super().__init__(host, "unreachable", message, hint)
