"""How busy a host and its devices are, from what /proc and the drivers' tools print. Pure; what cannot be read is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jobctl.jobspec.deploy.model.device_tables import ROCM_NAMES, npu_chips, rocm_cards, rocm_json
from jobctl.jobspec.deploy.model.untrusted import Json, as_text
from jobctl.jobspec.records import dataclass

_MIB = 1 << 20
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_TICKS = 100.0  # of /proc/stat, in a second: what Linux shows to programs everywhere


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One device at a moment. `utilization` is from 0 to 1, memory in bytes; None is what its tool does not say."""

    device: str
    name: str | None = None
    utilization: float | None = None
    memory_used: float | None = None
    memory: float | None = None
    watts: float | None = None
    celsius: float | None = None
    corrected: float | None = None  # errors of memory that ECC has corrected
    uncorrected: float | None = None  # and those that it could not


@dataclass(frozen=True, slots=True)
class HostSample:
    """One host at a moment. `cpu` has the seconds that its cores have spent so far, by what for; memory is in bytes."""

    cpu: Mapping[str, float]
    memory: float | None
    available: float | None
    load: float | None
    devices: tuple[DeviceSample, ...]


def parse_sample(text: str) -> HostSample:
    """Return what scripts/sample.sh has printed."""
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            lines = parts.setdefault(line[3:].strip(), [])
        else:
            lines.append(line)
    memory = {
        line.partition(":")[0]: _number(line.split()[1]) for line in parts.get("meminfo", ()) if len(line.split()) > 1
    }
    load = (parts.get("loadavg") or [""])[0].split()
    devices = (
        *_nvidia(parts.get("nvidia", [])),
        *_rocm("\n".join(parts.get("rocm", []))),
        *_npu("\n".join(parts.get("npu", []))),
    )
    return HostSample(
        _cpu((parts.get("stat") or [""])[0]),
        _times(memory.get("MemTotal"), 1024),
        _times(memory.get("MemAvailable"), 1024),
        _number(load[0]) if load else None,
        devices,
    )


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def _cpu(line: str) -> dict[str, float]:
    words = line.split()
    if words[:1] != ["cpu"]:
        return {}
    values = [_number(word) for word in words[1:]]
    return {mode: value / _TICKS for mode, value in zip(_CPU, values, strict=False) if value is not None}


def _nvidia(lines: list[str]) -> Iterator[DeviceSample]:
    """Yield the rows of `--query-gpu`; a value that a GPU does not have is `[N/A]` or `[Not Supported]`."""
    for line in lines:
        index, *values = [value.strip() for value in line.split(",")]
        if len(values) != 8 or not index.isdecimal():
            continue
        numbers = [_number(value) for value in values[1:]]
        use, used, total, watts, celsius, corrected, uncorrected = numbers
        yield DeviceSample(
            f"gpu:{index}",
            values[0],
            _times(use, 0.01),
            _times(used, _MIB),
            _times(total, _MIB),
            watts,
            celsius,
            corrected,
            uncorrected,
        )


_POWER = ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")
_HEAT = ("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")


def _rocm(text: str) -> Iterator[DeviceSample]:
    """Yield the cards of rocm-smi's JSON, whose keys differ between versions."""
    for number, card in rocm_cards(rocm_json(text)):
        yield DeviceSample(
            f"gpu:{number}",
            next((known for key in ROCM_NAMES if (known := as_text(card.get(key)))), None),
            _times(_first(card, "GPU use (%)"), 0.01),
            _first(card, "VRAM Total Used Memory (B)"),
            _first(card, "VRAM Total Memory (B)"),
            _first(card, *_POWER),
            _first(card, *_HEAT),
        )


def _first(card: Json, *keys: str) -> float | None:
    values = (_number(str(card[key])) for key in keys if key in card)
    return next((value for value in values if value is not None), None)


def _npu(text: str) -> Iterator[DeviceSample]:
    for chip in npu_chips(text):
        yield DeviceSample(
            f"npu:{chip.device}",
            chip.name,
            _times(_number(chip.use), 0.01),
            _times(chip.memory_used, _MIB),
            _times(chip.memory, _MIB),
            _number(chip.watts),
            _number(chip.celsius),
        )
