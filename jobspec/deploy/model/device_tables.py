"""The devices in what `rocm-smi` and `npu-smi` print, with values as they are there. Pure; what cannot be read is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobctl.jobspec.deploy.model.untrusted import Json, parse_object
from jobctl.jobspec.records import dataclass

ROCM_NAMES = ("Card series", "Card Series", "Card model", "Card Model")  # keys of a card's name, in several versions
_CARD = re.compile(r"card([0-9]{1,4})")


def rocm_json(text: str) -> Json:
    """Return the JSON of rocm-smi, before which it may print warnings."""
    return parse_object(text[text.find("{") :]) or {}


def rocm_cards(found: Json) -> Iterator[tuple[int, Json]]:
    """Yield the cards in the JSON of rocm-smi, with their numbers."""
    for name, card in found.items():
        match = _CARD.fullmatch(name)
        if match is not None and isinstance(card, dict):
            yield int(match[1]), card


@dataclass(frozen=True, slots=True)
class NpuChip:
    """A chip in the table of `npu-smi info`: its NPU, its number in that, and its number on the host. Memory is in MB."""

    npu: int
    chip: int
    device: int
    name: str
    health: str
    watts: str
    celsius: str
    use: str
    memory_used: int | None
    memory: int | None


_NPU = re.compile(
    r"\|\s*(?P<npu>[0-9]{1,4})\s+(?P<name>\S+)\s*\|\s*(?P<health>[A-Za-z]+)\s*\|"
    r"(?:\s*(?P<watts>\S+)\s+(?P<celsius>\S+)\s+|.*\s)[0-9]+\s*/\s*[0-9]+\s*\|"
)
_CHIP = re.compile(
    r"\|\s*(?P<chip>[0-9]{1,4})(?:\s+(?P<id>[0-9]{1,4}))?\s*\|\s*\S+\s*\|\s*(?P<use>\S+)(?P<memory>\s.*)\|"
)
_MEMORY = re.compile(r"([0-9]{1,18})\s*/\s*([0-9]{1,18})")


def npu_chips(text: str) -> Iterator[NpuChip]:
    """Yield the chips of `npu-smi info`: two rows of a table for each. Its memory is HBM, if it has any."""
    npu: re.Match[str] | None = None
    for line in map(str.strip, text.splitlines()):
        chip = _CHIP.fullmatch(line)
        if npu is None or chip is None:
            npu = _NPU.fullmatch(line)
            continue
        memories = [(int(used), int(total)) for used, total in _MEMORY.findall(chip["memory"])]
        used, total = next((one for one in memories[::-1] if one[1]), memories[0] if memories else (None, None))
        yield NpuChip(
            int(npu["npu"]),
            int(chip["chip"]),
            int(chip["id"] or npu["npu"]),
            npu["name"],
            npu["health"],
            npu["watts"] or "",
            npu["celsius"] or "",
            chip["use"],
            used,
            total,
        )
        npu = None
