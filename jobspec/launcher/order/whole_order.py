"""A whole order in datagrams: for a launcher that no control file has reached, as its command was killed or cut off."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.system.files import parse_json

if TYPE_CHECKING:
    from typing import Dict, List, Optional
WHOLE = 64 * 1024 * 1024  # bytes of an order: one of as many nodes as a spec may say, with long names, has less
PART = 32 * 1024  # characters of its text in one datagram, which holds 64 KiB: some 1,500 nodes
HOLDERS = 8  # of the launchers that could hand an order on, so many do: all would send more than a socket takes
MAX_PARTIAL_TEXTS = 4  # texts whose parts are kept until they are complete


@record
class OrderPart:
    """Which part of a text a datagram has: its place, of how many there are, and the sum of the text."""

    place: int
    of: int
    sum: int


def packed(order: Order) -> str:
    """Return the text that `unpacked` reads: 256 nodes take some 10 KB."""
    return base64.b64encode(zlib.compress(json.dumps(order.to_json()).encode())).decode()


def unpacked(text: str) -> Optional[Order]:
    """Return the order in a text, None where there is none that this launcher can follow."""
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text), WHOLE)
        return Order.from_json(parse_json(data.decode()))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, zlib.error):
        return None


def divided(text: str) -> List[str]:
    """Return what goes into one datagram each."""
    return [text[at : at + PART] for at in range(0, len(text), PART)]


def sum_of(text: str) -> int:
    """Return what tells a text from others."""
    return binascii.crc32(text.encode())


def hands_on(tick: str, node: int, nodes: int) -> bool:
    """Say whether the launcher of `node` is one of those that hand an order on because of this tick: with each tick others are.

    Raises ValueError for a name that no tick has.
    """
    return (int(tick, 16) + node) % max(1, nodes // HOLDERS) == 0


class OrderParts:
    """The parts of texts that have come, from whichever launchers."""

    def __init__(self) -> None:
        self.found: Dict[int, Dict[int, str]] = {}  # by the sum of the text, and by place

    def add(self, text: str, part: Optional[OrderPart]) -> Optional[str]:
        """Return the whole text if it is complete with this part of it, None if it is not; without `part`, `text` is whole."""
        if part is None:
            return text
        parts = self.found.pop(part.sum, {})
        self.found[part.sum] = parts
        parts[part.place] = text
        for old in list(self.found)[:-MAX_PARTIAL_TEXTS]:
            del self.found[old]
        if len(parts) < part.of:
            return None
        del self.found[part.sum]
        whole = "".join(parts.get(place, "") for place in range(part.of))
        return whole if sum_of(whole) == part.sum else None
