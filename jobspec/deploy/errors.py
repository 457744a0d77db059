"""What can go wrong while the world is changed, in words a user can act on."""

from __future__ import annotations


class DeployError(Exception):
    """A step that could not be carried out: the message says what and where, `hint` the remedy."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class NothingToEnter(DeployError):
    """Nothing of the node or service runs that a command could be run in; it may begin soon."""


class CannotRun(DeployError):
    """A command that a user gave cannot be run: `code` is 127 if there is none, 126 if it may not, as shells say."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
