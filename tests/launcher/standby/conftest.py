"""A node whose framework is a stand-in, and a rank that waits without a launcher."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.standby import guard as standby_guard
from jobctl.jobspec.launcher.standby.guard import write_hook
from jobctl.jobspec.launcher.standby.rank import group_nice, set_group_nice
from jobctl.jobspec.render.launcher import launcher

from .place import Place
from .stand_in import FRAMEWORK, LAUNCH, OWN, RUN, SETS, TRAIN


@pytest.fixture(params=["torchrun"])
def standby(node: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A node whose framework is the stand-in; its launcher starts the processes, or jobctl does (`itself`).

    `script`: a launcher as Paddle's is.
    """
    packages = tmp_path / "site-packages"
    (packages / "framework").mkdir(parents=True)
    (packages / "framework" / "__init__.py").write_text(FRAMEWORK)
    (packages / "framework" / "run.py").write_text(RUN)
    (packages / "framework" / "launch.py").write_text(LAUNCH)
    (packages / "needed.py").write_text("")
    (packages / "later.py").write_text("import os\nlevel = os.environ.get('LEVEL')\n")
    (tmp_path / "train.py").write_text(TRAIN)
    node.launch.update(
        start=[node.python, "-m", "framework.run", "2", {"slot": "process"}],
        command=[node.python, "-u", "train.py", "--rate", "0.1"],
        nproc=2,
        env=[["PYTHONPATH", str(packages)]],
        standby={"imports": [["framework"], ["later"]], "launcher": "framework.run", "off": "", "changing": OWN},
    )
    if request.param == "script":
        node.launch["start"] = [node.python, "-m", "framework.launch", "2", {"slot": "process_script"}]
        node.launch["standby"]["launcher"] = "framework.launch:launch"
        node.launch["rank_env"] = ["PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE"]
    if request.param == "itself":
        (packages / "framework" / "__init__.py").write_text(FRAMEWORK + SETS)
        node.launch.update(start=[], process_env=[["MASTER_PORT", {"slot": "master_port"}]])
    return node


@pytest.fixture(scope="session")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hook, which is compiled once."""
    folder = tmp_path_factory.mktemp("hook")
    (folder / "launcher.py").write_bytes(launcher())
    write_hook(str(folder / "hook"), str(folder / "launcher.py"))
    return folder / "hook"


@pytest.fixture
def place(tmp_path: Path, python: str, hook: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(standby_guard, "PATIENT", 1.0)  # else it stands behind other tests, with all of this session
    before = group_nice()
    yield Place(tmp_path, python, hook)
    if before is not None and group_nice() != before:  # by a rank that ended while it waited
        with contextlib.suppress(PermissionError):
            set_group_nice(before)
