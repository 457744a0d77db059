"""Options of `docker run` that target `compose` cannot say, known before anything is rendered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.load import Loaded
    from jobctl.jobspec.spec.targets import TargetName


def options_not_in_compose(loaded: Loaded, target: TargetName) -> Iterator[Diagnostic]:
    """Yield an error for the first option that a compose file has no key for, if the job is to run on that target."""
    from jobctl.jobspec.render.errors import RenderError
    from jobctl.jobspec.render.options import service_keys
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.targets import traits_of

    traits = traits_of(target)
    if not (traits.takes_hosts and traits.uses_compose) or loaded.draft is None:
        return
    try:
        service_keys(loaded.draft.container.options)
    except RenderError as error:
        span = loaded.source.value_span(("container", "options"))
        yield Diagnostic("error", error.code, str(error), span, error.hint)
