"""Where the checkpoints are in a cluster, where a volume of a name is a claim that all pods see."""

from __future__ import annotations

from pathlib import PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec


def is_in_a_volume(spec: Spec) -> bool:
    """Say whether the checkpoints are in a volume of a name: a folder of the node there would hide that of the volume.

    Without a name a volume is gone with its pod, and in one that is read-only nobody can save.
    """
    if spec.checkpoint is None or (spec.kubernetes and spec.kubernetes.checkpoint_claim):
        return False
    place = PurePosixPath(normpath(spec.checkpoint.dir))
    around = [(normpath(one.target), one) for one in spec.volumes]
    holding = [(len(target), one) for target, one in around if place.is_relative_to(target)]
    _, inner = max(holding, key=lambda found: found[0], default=(0, None))
    return inner is not None and inner.kind == "volume" and bool(inner.source) and not inner.read_only
