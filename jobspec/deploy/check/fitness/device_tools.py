"""What the tools of drivers say of devices: `nvidia-smi`, `rocm-smi` and `npu-smi`, as they print it. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from jobctl.jobspec.deploy.model.device_tables import ROCM_NAMES, npu_chips, rocm_cards, rocm_json
from jobctl.jobspec.deploy.model.untrusted import Json, as_text
from jobctl.jobspec.frameworks.failure_patterns import XIDS
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What a driver says of one device: what it is, by name, and why no job should use it. Names have units."""

    items: Mapping[str, float | str]
    broken: tuple[str, ...] = ()


def device_states(said: object) -> list[DeviceState]:
    """Return the devices that a tool has told of, in its order; `said` is what a probe has of it."""
    if not isinstance(said, dict):
        return []
    read, text = _READERS.get(str(said.get("tool"))), as_text(said.get("text"))
    errors = as_text(said.get("errors")) or ""  # where another command tells of errors of memory
    return list(read(text, errors)) if read is not None and text is not None else []


# What nvidia-smi was asked for, in that order, by what a person calls it. Errors of memory come after these.
_NVIDIA = (
    None,  # the index
    "model",
    "driver",
    "firmware",
    "memory in MiB",
    "power limit in W",
    "highest clock in MHz",
    "PCIe lanes",
)


def _nvidia(text: str, _: str) -> Iterator[DeviceState]:
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        state = words[len(_NVIDIA) :]
        if len(state) not in (2, 4):  # an old driver does not know the last two
            continue
        items = {name: value for name, word in zip(_NVIDIA, words, strict=False) if name and (value := number(word))}
        broken = []
        errors, retires, *remaps = state
        uncorrected = number(errors)
        if isinstance(uncorrected, float) and uncorrected > 0:
            broken.append(f"has had {uncorrected:g} memory errors that ECC could not correct")
        if retires.lower() == "yes":
            broken.append("waits for a reset, to retire pages of its memory")
        if remaps and remaps[0].lower() in ("yes", "1"):
            broken.append("waits for a reset, to use spare rows of its memory instead of bad ones")
        if remaps and remaps[1].lower() in ("yes", "1"):
            broken.append("has no spare rows of memory left for a bad one")
        yield DeviceState(items, tuple(broken))


_MIB = 1 << 20


def _rocm(text: str, errors: str) -> Iterator[DeviceState]:
    """Yield the cards of rocm-smi's JSON; keys differ between versions."""
    found = rocm_json(text)
    system = found.get("system")
    driver = as_text(system.get("Driver version")) if isinstance(system, dict) else None
    broken = _ras(errors)
    for index, card in rocm_cards(found):
        items = {key: value for key, value in _card(card, driver).items() if value is not None}
        yield DeviceState(items, tuple(broken.get(index, ())))


_RAS_GPU = re.compile(r"GPU\[([0-9]{1,4})\]\s*:\s*RAS INFO")
_RAS_BLOCK = re.compile(r"(\w+)\s+ENABLED\s+[0-9]+\s+([0-9]+)")


def _ras(text: str) -> dict[int, list[str]]:
    """Return what `rocm-smi --showrasinfo` tells of errors, by GPU.

    The last column is that of errors that could not be corrected, whatever its head says in some versions. Blocks that are
    not enabled have numbers without a meaning.
    """
    found: dict[int, list[str]] = {}
    broken: list[str] = []
    for line in map(str.strip, text.splitlines()):
        gpu, block = _RAS_GPU.fullmatch(line), _RAS_BLOCK.fullmatch(line)
        if gpu is not None:
            broken = found.setdefault(int(gpu[1]), [])
        elif block is not None and int(block[2]):
            broken.append(f"has had {int(block[2])} errors that ECC could not correct, in its block {block[1]}")
    return found


def _card(card: Json, driver: str | None) -> dict[str, float | str | None]:
    memory = _first(card, "VRAM Total Memory (B)")
    clocks = re.findall(r"([0-9]+)\s*MHz", str(card.get("Valid sclk range")), re.IGNORECASE)
    return {
        "model": _first(card, *ROCM_NAMES),
        "driver": driver,
        "firmware": _first(card, "VBIOS version"),
        "memory in MiB": memory / _MIB if isinstance(memory, float) else None,
        "power limit in W": _first(card, "Max Graphics Package Power (W)"),
        "highest clock in MHz": float(clocks[-1]) if clocks else None,
    }


def _first(card: Json, *keys: str) -> float | str | None:
    return next((value for key in keys if (value := number(str(card.get(key, "")))) is not None), None)


_VERSION = re.compile(r"\|\s*npu-smi\s+\S+\s+Version:\s*(\S+)")
_BAD = ("alarm", "critical")  # beside OK, Warning and UNKNOWN, which only may differ from the other devices


def _npu(text: str, errors: str) -> Iterator[DeviceState]:
    version = _VERSION.search(text)
    broken = _of_memory(errors)
    for chip in npu_chips(text):
        memory, health = float(chip.memory or 0), chip.health
        items: dict[str, float | str] = {"model": chip.name, "memory in MiB": memory, "health": health}
        items |= {"driver": version[1]} if version else {}
        bad = (f"has the health `{health}`, by `npu-smi`",) if health.lower() in _BAD else ()
        yield DeviceState(items, (*bad, *broken.get((chip.npu, chip.chip), ())))


_COUNT = re.compile(
    r"(?:(?:HBM|DDR) )?Double[ -][Bb]it (?P<what>Error|Next-Isolated Pages) Count\s*:\s*(?P<count>[0-9]{1,10})"
)
_ID = re.compile(r"(?P<what>NPU|Chip) ID\s*:\s*(?P<number>[0-9]{1,4})")
_PAGES = 64  # that may wait: npu-smi subtracts numbers without a sign, and may print much more for less than none


def _of_memory(text: str) -> dict[tuple[int, int], list[str]]:
    """Return what `npu-smi info -t ecc` tells of each NPU and chip. The number of a chip comes last, where there is one."""
    found: dict[tuple[int, int], list[str]] = {}
    npu, told = 0, list[str]()
    for line in [*map(str.strip, text.splitlines()), "NPU ID: 0"]:
        number, count = _ID.fullmatch(line), _COUNT.fullmatch(line)
        if number is not None and number["what"] == "NPU":
            found.setdefault((npu, 0), []).extend(told)
            npu, told = int(number["number"]), []
        elif number is not None:
            found[npu, int(number["number"])], told = told, []
        elif count is not None:
            told += _told(count["what"], int(count["count"]))
    return found


def _told(what: str, count: int) -> Iterator[str]:
    if what == "Error" and count:
        yield f"has had {count} memory errors that ECC could not correct"
    elif what != "Error" and 0 < count <= _PAGES:
        yield "waits for a reset, to isolate bad pages of its memory"


_READERS: Mapping[str, Callable[[str, str], Iterator[DeviceState]]] = {
    "nvidia-smi": _nvidia,
    "rocm-smi": _rocm,
    "npu-smi": _npu,
}


# As NVIDIA's driver writes them: "NVRM: Xid (PCI:0000:3b:00): 79, pid=…".
_XID = re.compile(r"NVRM: Xid \(([^)]{1,40})\): ([0-9]{1,4})\b")


def driver_errors(log: str) -> list[str]:
    """Return what a kernel's log tells of broken devices since the host was started: one text for each device and Xid."""
    found = Counter((device, int(code)) for device, code in _XID.findall(log) if int(code) in XIDS)
    return [
        f"the device at {device} has reported Xid {code}{f' {count} times' if count > 1 else ''} ({XIDS[code]})"
        for (device, code), count in found.items()
    ]


def number(text: str) -> float | str | None:
    """Return a value of a tool: a number where it is one, None where the device does not tell."""
    words = text.strip()
    if not words or words.startswith("[") or words.upper() in ("N/A", "NA", "-"):  # [N/A], [Not Supported]
        return None
    try:
        return float(words)
    except ValueError:
        return words
