"""The OpenMetrics text format, version 1.0, and the older one of Prometheus. Pure.

By hand: a client library would bring a registry of global counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import lru_cache
from typing import Literal

from jobctl.jobspec.records import dataclass

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["gauge", "counter", "info", "stateset"]

_SUFFIX = {"gauge": "", "counter": "_total", "info": "_info", "stateset": ""}


@dataclass
class Family:
    """Samples of one name. A `unit` is the last part of the name."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    samples: dict[str, float] = field(default_factory=dict)

    def add(self, value: float | None, labels: str) -> None:
        """Add a sample with `labelled` labels; nothing for None. The first sample of some labels counts."""
        if value is not None:
            self.samples.setdefault(labels, value)

    def lines(self) -> Iterator[str]:
        """Yield the lines, none where there is no sample."""
        if not self.samples:
            return
        yield f"# TYPE {self.name} {self.kind}"
        if self.unit:
            yield f"# UNIT {self.name} {self.unit}"
        yield f"# HELP {self.name} {_escaped(self.meaning)}"
        name = self.name + _SUFFIX[self.kind]
        for labels, value in self.samples.items():
            yield f"{name}{labels} {_number(value)}"


def labelled(**labels: object) -> str:
    """Return labels as the format writes them, without those that are None."""
    text = ",".join(f'{name}="{_escaped(str(label))}"' for name, label in labels.items() if label is not None)
    return f"{{{text}}}" if text else ""


@lru_cache(maxsize=1 << 12)  # most are of several samples, and of the next look
def _escaped(text: str) -> str:
    plain = text.encode(errors="replace").decode()
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def exposition(families: Iterable[Family]) -> str:
    """Return the text of all families."""
    return "".join(f"{line}\n" for family in families for line in family.lines()) + "# EOF\n"


def wants_plain(accept: str) -> bool:
    """Say whether a client that sends this header `Accept` knows the older format alone."""
    return "text/plain" in accept and "openmetrics" not in accept


def plain(text: str) -> str:
    """Return metrics in the older format, which has no units and only gauges and counters, named as their samples are."""
    lines: list[str] = []
    suffix = ""
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        word, _, rest = rest.partition(" ")
        name, _, rest = rest.partition(" ")
        if mark != "#":
            lines.append(line)
        elif word == "TYPE":
            suffix = _SUFFIX[rest]
            lines.append(f"# TYPE {name}{suffix} {'counter' if rest == 'counter' else 'gauge'}")
        elif word == "HELP":
            lines.append(f"# HELP {name}{suffix} {rest}")
    return "".join(f"{line}\n" for line in lines)
