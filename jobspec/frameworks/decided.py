"""Variables of a spec's `env` that reach no process: jobctl or the framework's launcher decides them."""

from __future__ import annotations

from collections.abc import Iterator

from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.load import Loaded


def decided(loaded: Loaded) -> Iterator[Diagnostic]:
    """Yield a warning for each of them."""
    spec = loaded.spec
    if spec is None:
        return
    known = framework(spec.framework).decides()
    for name in spec.env:
        if name in known:
            message = f"processes are told `{name}` by the launcher: this value never arrives"
            where = loaded.source.key_span(("env", name))
            yield Diagnostic("warning", "reserved-variable", message, where, "leave it out")
