"""The Jinja environments: for compose files, for shell scripts and for pages, built when first used.

Importing jinja2 costs a tenth of a second that `jobctl validate` must not pay. Templates hold nothing but
`for` and `if`; a name that a template gets wrong is an error, and every value is quoted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from jobctl.jobspec.render.quote import quote_compose, quote_shell, visible

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def compose_template(name: str) -> Template:
    """Return the template `name`, whose values become YAML."""
    return _template(name, quote_compose)


@cache
def shell_template(name: str) -> Template:
    """Return the template `name`, whose values become words of a shell."""
    return _template(name, quote_shell)


@cache
def html_template(name: str) -> Template:
    """Return the template `name`, whose values become text of an HTML page."""
    return _template(name, visible, escape=True)


def _template(name: str, finalize: Callable[[object], str], *, escape: bool = False) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("jobctl.templates", "."),
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escape,
    )
    return environment.get_template(name)
