"""Options in `torch.torchrun` that torchrun would take for the script, and those with which no job starts."""

from __future__ import annotations

from collections.abc import Iterator

from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.source import Source

_WHAT_RUNS = frozenset(("-m", "--module", "--run-path"))
_WHERE_TO_MEET = ("--rdzv-b", "--rdzv-e")  # torchrun takes the beginning of an option for the whole


def check_torchrun_options(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield an error for each of them."""
    takes = False  # whether the word may be the value of the option before it
    for number, word in enumerate(spec.torch.torchrun if spec.torch else ()):
        name, equals, _ = word.partition("=")
        found = _wrong(spec, word, name.replace("_", "-"), takes)
        if found is not None:
            span = source.value_span(("torch", "torchrun", number))
            yield Diagnostic("error", "torchrun-option", found[0], span, found[1])
        takes = word.startswith("-") and not equals


def _wrong(spec: Spec, word: str, name: str, takes: bool) -> tuple[str, str] | None:
    """Return what is wrong with a word, and the remedy."""
    if name in _WHAT_RUNS:
        return f"jobctl tells torchrun what to run, and `{word}` does not go with that", "leave it out"
    if name.startswith(_WHERE_TO_MEET) and spec.nodes.max > 1:
        hint = "leave it out: jobctl has them meet, at another place after each failure"
        return f"with `{word}` nodes would meet where jobctl does not look", hint
    if name == "--standalone" and spec.nodes.max > 1:
        return "with `--standalone` each node would wait for the others by itself", "leave it out: jobctl has them meet"
    if word.startswith("--") and " " in name:
        hint = f"write each word as an item: `[{', '.join(word.split())}]`"
        return f"`{word}` is one word, which torchrun would take for the script", hint
    if not word.startswith("-") and not takes:
        return f"`{word}` is no option: torchrun would take it for the script", "an option begins with `-`"
    return None
