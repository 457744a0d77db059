"""What can go wrong while the world is changed, in words a user can act on."""

from __future__ import annotations


class DeployError(Exception):
    """A step that could not be carried out: the message says what and where, `hint` the remedy."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint
