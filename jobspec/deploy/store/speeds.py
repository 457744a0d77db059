"""How fast hosts have measured so far, kept below the state directory: a file for each host.

A host is compared with what it measured with the same image and effort: another image may bring another framework.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.records import dataclass

MAX_VALUES = 20  # of the newest values of each thing that is measured


@dataclass(frozen=True, slots=True)
class Speed:
    """A measured value: of a host, or of a device of it (`device` is "" for the host)."""

    host: str
    metric: str
    device: str
    value: float


@dataclass(frozen=True, slots=True)
class Speeds:
    """The files of all hosts; `under` names for each host the conditions of its measurements, such as its image."""

    root: Path
    under: Mapping[str, str]

    def past(self) -> dict[str, dict[tuple[str, str], list[float]]]:
        """Return earlier values under the same conditions, oldest first: by metric, host and device."""
        found: dict[str, dict[tuple[str, str], list[float]]] = {}
        for host, condition in self.under.items():
            kept = (read_json(self._path(host)) or {}).get(condition)
            for key, values in kept.items() if isinstance(kept, dict) else ():
                metric, _, device = key.partition("|")
                numbers = [float(value) for value in values if isinstance(value, int | float)]
                found.setdefault(metric, {})[host, device] = numbers
        return found

    def keep(self, speeds: Iterable[Speed]) -> None:
        """Add values, where there is room for them: nothing depends on it."""
        hosts: dict[str, list[Speed]] = {}
        for one in speeds:
            hosts.setdefault(one.host, []).append(one)
        for host, mine in hosts.items():
            with contextlib.suppress(OSError):
                self._add(host, mine)

    def _add(self, host: str, speeds: Iterable[Speed]) -> None:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = read_json(self._path(host)) or {}
        kept = data.setdefault(self.under[host], {})
        for one in speeds:
            key = f"{one.metric}|{one.device}"
            kept[key] = [*kept.get(key, ()), one.value][-MAX_VALUES:]
        write_json(self._path(host), data, 0o600)

    def _path(self, host: str) -> Path:
        return self.root / f"{host.replace('/', '_')}.json"
