"""The archive of an image as its engine saves it: which layers it has, and which of them need not be sent."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

from jobctl.jobspec.deploy.host.scripts.frames import PIECE

BLOBS = "blobs/sha256/"
LISTING = "manifest.json"  # names the files of all layers; every engine writes it
MAX_LISTING_BYTES = 1 << 24  # bytes of such a file that are read


def without_layers(saved: Iterable[bytes], left_out: frozenset[str]) -> Iterator[bytes]:
    """Yield the tar of a saved image without the blobs of some layers.

    Raises tarfile.TarError, also where a layer is missing that should be there: an engine that keeps what it got from registries
    (containerd's store) may have lost blobs whose content it has unpacked, and saves the rest without a word.
    """
    names = {BLOBS + layer[len("sha256:") :] for layer in left_out}
    reader: Any = SavedBytes(saved)
    there, listing = set(names), b""
    with tarfile.open(fileobj=reader, mode="r|", bufsize=PIECE) as archive:
        for member in archive:
            there.add(member.name)
            if member.name in names:
                continue
            yield member.tobuf(tarfile.PAX_FORMAT)
            content = archive.extractfile(member) if member.isreg() else None
            while content and (piece := content.read(PIECE)):
                yield piece
                if member.name == LISTING and member.size <= MAX_LISTING_BYTES:
                    listing += piece
            if content:
                yield bytes(-member.size % tarfile.BLOCKSIZE)
    if lacking := sorted(set(layer_files(listing)) - there):
        raise tarfile.ReadError(f"its engine has lost a part of it ({lacking[0]})")
    yield bytes(2 * tarfile.BLOCKSIZE)


def layer_files(listing: bytes) -> list[str]:
    """Return the names of the files of all layers in an archive, given its list; none where that is not what engines write."""
    try:
        found = json.loads(listing or b"[]")
        return [str(name) for image in found for name in image["Layers"] or ()]
    except (ValueError, TypeError, KeyError):
        return []


class SavedBytes:
    """Pieces of bytes as a file."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._left = iter(pieces), b""

    def read(self, size: int) -> bytes:
        """Return at most so many bytes, nothing at the end."""
        if not self._left:
            self._left = next(self._pieces, b"")
        piece, self._left = self._left[:size], self._left[size:]
        return piece
