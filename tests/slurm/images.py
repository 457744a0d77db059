"""An image for jobs in containers: a few folders. The programs are those of the machine, by a volume."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

NAME = "jobctl-slurm:1"
VOLUMES = ("/usr:/usr:ro",)
PYTHON = "/usr/bin/python3"
_FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var", "var/tmp")
_LINKS = ("bin", "sbin", "lib", "lib64")  # to what is below /usr


def write_archive(path: Path) -> None:
    """Write the image as `docker save` does, without any engine."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in _FOLDERS:
            _add(tar, name, type=tarfile.DIRTYPE, mode=0o1777 if name.endswith("tmp") else 0o755)
        for name in _LINKS:
            _add(tar, name, type=tarfile.SYMTYPE, linkname=f"usr/{name}")
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", mode=0o644)
    content = layer.getvalue()
    told = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/bin:/bin", "OF_IMAGE=yes"], "Entrypoint": ["/no/such/entrypoint"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
    }
    config = json.dumps(told).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for member, data in ((name, config), ("layer.tar", content), ("manifest.json", json.dumps(manifest).encode())):
            _add(tar, member, data, mode=0o644)


def _add(tar: tarfile.TarFile, name: str, content: bytes = b"", **fields: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in fields.items():
        setattr(member, key, value)
    tar.addfile(member, io.BytesIO(content))
