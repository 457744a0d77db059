"""Rules about who tells people what happens to a job: some targets have nobody."""

from __future__ import annotations

from collections.abc import Iterator

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source


def check_told(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield what asks to be told where nobody tells."""
    if spec.notify:
        message = "nobody tells on this target: `notify` needs a supervisor of jobctl, and there is none"
        yield Diagnostic("warning", "notify-target", message, source.key_span(("notify",)), "leave it out")
    message = "the pods of a job tell nobody: `from_hosts` is for hosts, and for `local`"
    yield from _from_hosts(spec, source, message)


def check_from_hosts(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield what asks launchers to tell which have nothing but etcd in common."""
    if spec.etcd is not None:
        message = "launchers that agree by `etcd` tell nobody: `from_hosts` has no effect there"
        yield from _from_hosts(spec, source, message)


def _from_hosts(spec: Spec, source: Source, message: str) -> Iterator[Diagnostic]:
    """Yield an error for each URL that would be on hosts for nothing."""
    for number, one in enumerate(spec.notify or ()):
        if one.from_hosts:
            span = source.key_span(("notify", number, "from_hosts"))
            yield Diagnostic("error", "notify-from-hosts", message, span, "leave it out")
