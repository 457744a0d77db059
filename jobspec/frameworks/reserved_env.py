"""Variables of a spec's `env` that reach no process: jobctl or the framework's launcher decides them."""

from __future__ import annotations

from collections.abc import Iterator

from jobctl.jobspec.frameworks.base import Framework, RankSet, framework
from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.load import Loaded
from jobctl.jobspec.spec.model import Spec


def reserved_env_warnings(loaded: Loaded) -> Iterator[Diagnostic]:
    """Yield a warning for each of them."""
    spec = loaded.spec
    if spec is None:
        return
    known = framework(spec.framework)
    names = known.reserved_env() | _told(known, spec)
    for name in spec.env:
        if name in names:
            message = f"processes are told `{name}` by the launcher: this value never arrives"
            where = loaded.source.key_span(("env", name))
            says = known.spec_keys_by_variable().get(name)
            hint = f"leave it out: {says} says it" if says else "leave it out"
            yield Diagnostic("warning", "reserved-variable", message, where, hint)


def _told(known: Framework, spec: Spec) -> set[str]:
    """Return those that a node of some role is started with, or without whatever `env` says."""
    devices = () if spec.devices.kind == "cpu" else (0,)
    starts = [known.start(spec, RankSet("python3", 1, devices, role.name)) for role in known.roles(spec)]
    told = [pair for start in starts for pair in (*start.env, *start.process_env)]
    # Some are passed on as the user gave them; those of jobctl's own are told of whatever the framework is.
    decided = {name for name, value in told if spec.env.get(name) != value and not name.startswith("JOBCTL_")}
    return decided.union(*(start.scrub for start in starts))
