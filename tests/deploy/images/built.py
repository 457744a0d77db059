"""A folder that an image is built from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jobctl.jobspec.deploy.store.build_context import context_of
from jobctl.jobspec.plan.sent import Build


def folder_to_build(tmp_path: Path) -> Path:
    """A folder to build from, with a bit of everything."""
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "Dockerfile").write_text("FROM base:1\nCOPY . /app\n")
    (root / "src" / "deep" / "train.py").write_text("print(1)\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "latest").symlink_to("src/deep")
    (root / "job.yaml").write_text("name: demo\n")
    (root / ".env").write_text("TOKEN=1\n")
    (root / ".git").mkdir()
    (root / ".git" / "index").write_text("1")
    return root


def build_of(root: Path, **changes: Any) -> Build:
    plain = Build("demo:1", str(root), str(root / "Dockerfile"), withheld=((str(root / "job.yaml"), "the spec"),))
    return replace(plain, **changes)


def version(root: Path, **changes: Any) -> str:
    build = build_of(root, **changes)
    return context_of(build, "demo").version(build)
