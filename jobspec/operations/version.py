"""The version of jobctl, as its package says."""

from __future__ import annotations


def version() -> str:
    """Return the version of the installed package."""
    from importlib.metadata import version as of

    return of("jobctl")
