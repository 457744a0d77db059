"""The one error of rendering, apart so that every renderer can raise it."""

from __future__ import annotations


class RenderError(Exception):
    """A plan that cannot be rendered: `code` is stable, `hint` the remedy."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint
