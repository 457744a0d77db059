"""How busy a host and its devices are, from what /proc and the drivers' tools print. Pure; what cannot be read is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jobctl.jobspec.deploy.model.untrusted import Json, as_text, parse_object
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
        *_npu(parts.get("npu", [])),
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


_CARD = re.compile(r"card([0-9]{1,4})")
_POWER = ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")
_HEAT = ("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")
_NAME = ("Card series", "Card Series", "Card model", "Card Model")


def _rocm(text: str) -> Iterator[DeviceSample]:
    """Yield the cards of rocm-smi's JSON, whose keys differ between versions."""
    found = parse_object(text[text.find("{") :]) or {}
    for name, card in found.items():
        match = _CARD.fullmatch(name)
        if match is None or not isinstance(card, dict):
            continue
        yield DeviceSample(
            f"gpu:{match[1]}",
            next((known for key in _NAME if (known := as_text(card.get(key)))), None),
            _times(_first(card, "GPU use (%)"), 0.01),
            _first(card, "VRAM Total Used Memory (B)"),
            _first(card, "VRAM Total Memory (B)"),
            _first(card, *_POWER),
            _first(card, *_HEAT),
        )


def _first(card: Json, *keys: str) -> float | None:
    values = (_number(str(card[key])) for key in keys if key in card)
    return next((value for value in values if value is not None), None)


_NPU = re.compile(
    r"\|\s*(?P<npu>[0-9]+)\s+(?P<name>\S+)\s*\|\s*\S+\s*\|\s*(?P<watts>\S+)\s+(?P<celsius>\S+)\s+[0-9]+\s*/\s*[0-9]+\s*\|"
)
_CHIP = re.compile(
    r"\|\s*[0-9]+(?:\s+(?P<id>[0-9]+))?\s*\|\s*\S+\s*\|\s*(?P<use>\S+)\s+(?P<used>[0-9]+)\s*/\s*(?P<total>[0-9]+)"
    r"(?:\s+(?P<hbm>[0-9]+)\s*/\s*(?P<all>[0-9]+))?\s*\|"
)


def _npu(lines: list[str]) -> Iterator[DeviceSample]:
    """Yield the chips of `npu-smi info`: two rows of a table for each. Those with HBM have no other memory."""
    npu: re.Match[str] | None = None
    for line in lines:
        chip = _CHIP.fullmatch(line.strip())
        if npu is not None and chip is not None:
            hbm = bool(_number(chip["all"] or ""))
            yield DeviceSample(
                f"npu:{chip['id'] or npu['npu']}",
                npu["name"],
                _times(_number(chip["use"]), 0.01),
                _times(_number(chip["hbm"] if hbm else chip["used"]), _MIB),
                _times(_number(chip["all"] if hbm else chip["total"]), _MIB),
                _number(npu["watts"]),
                _number(npu["celsius"]),
            )
            npu = None
        else:
            npu = _NPU.fullmatch(line.strip())
