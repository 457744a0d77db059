"""A whole order in a datagram: for a launcher that no control file has reached, as its command was killed or cut off."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order import Order

if TYPE_CHECKING:
    from typing import Optional
WHOLE = 4 * 1024 * 1024  # bytes of an order: a job of 4096 nodes has less


def packed(order: Order) -> str:
    """Return the text that `unpacked` reads: 256 nodes take some 10 KB."""
    return base64.b64encode(zlib.compress(json.dumps(order.to_json()).encode())).decode()


def unpacked(text: str) -> Optional[Order]:
    """Return the order in a text, None where there is none that this launcher can follow."""
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text), WHOLE)
        return Order.from_json(json.loads(data.decode()))
    except (AttributeError, KeyError, TypeError, ValueError, zlib.error):
        return None
