"""Searches all states of a model with SPIN, for one size of job and with one planted bug or with none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("launchers.pml")
FORGETTING = Path(__file__).with_name("forgetting.pml")
DEEPEST = 3_000_000  # steps from the first state; SPIN says when that is not enough
_ERRORS, _STATES = re.compile(r"errors: (\d+)"), re.compile(r"(\d+) states, stored")


@dataclass(frozen=True)
class Instance:
    """A job of so many nodes, in launchers.pml.

    `supervisor`: it has one at first; `others`: another one may take over from it. `progress`: it is also checked that
    all nodes train again once nothing fails any more. `bug`: which BUG_ of the model is planted. `hot`: launchers may
    move a node to a hot spare. `ends`: they may end the job. `pauses`: a command may stop it for a change. `options`: of the compiler, which takes longer than the search
    of a small job.
    """

    nodes: int
    supervisor: bool = True
    others: bool = True
    progress: bool = False
    bug: str | None = None
    hot: bool = False
    ends: bool = False
    pauses: bool = False
    options: tuple[str, ...] = ("-O0",)

    @property
    def definitions(self) -> list[str]:
        """Return what the model asks for."""
        values = {"N": self.nodes, "SUPERVISOR": int(self.supervisor), "OTHERS": int(self.others), "HOT": int(self.hot)}
        values |= {"ENDS": int(self.ends), "PAUSES": int(self.pauses)}
        flags = [name for name, given in (("PROGRESS", self.progress), (f"BUG_{self.bug}", self.bug)) if given]
        return [f"-D{name}={value}" for name, value in values.items()] + [f"-D{flag}" for flag in flags]


@dataclass(frozen=True)
class Forgetful:
    """A job of so many nodes, in forgetting.pml.

    `losses`: how often a launcher is started again. `generations`: how many launchers may begin in a row. `progress`,
    `bug` and `options` are as of an Instance.
    """

    nodes: int = 2
    losses: int = 1
    generations: int = 2
    progress: bool = True
    bug: str | None = None
    options: tuple[str, ...] = ("-O0",)

    @property
    def definitions(self) -> list[str]:
        """Return what the model asks for."""
        values = {"N": self.nodes, "LOSSES": self.losses, "GENERATIONS": self.generations}
        flags = [name for name, given in (("PROGRESS", self.progress), (f"BUG_{self.bug}", self.bug)) if given]
        return [f"-D{name}={value}" for name, value in values.items()] + [f"-D{flag}" for flag in flags]


@dataclass(frozen=True)
class Found:
    """What a search has found: how many states there are, and what is wrong with the first one that is (None: nothing)."""

    states: int
    wrong: str | None


def find_spin() -> None:
    """Skip, or fail where all tools have to be there, unless SPIN and a C compiler are installed."""
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    if missing:
        reason = f"no {' and no '.join(missing)} on PATH"
        (pytest.fail if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip)(reason)


def search(instance: Instance | Forgetful, folder: Path) -> Found:
    """Search all states; stop at the first one that is wrong."""
    find_spin()
    model = MODEL if isinstance(instance, Instance) else FORGETTING
    _run(folder, "spin", "-a", *instance.definitions, str(model))
    _run(folder, "gcc", *instance.options, "-w", "-DSAFETY", "-DNOREDUCE", "-DVECTORSZ=256", "-o", "pan", "pan.c")
    said = _run(folder, "./pan", f"-m{DEEPEST}", "-E")
    assert "max search depth too small" not in said, said
    assert "Search not completed" not in said or "assertion violated" in said, said
    errors, states = _ERRORS.search(said), _STATES.search(said)
    assert errors is not None, said
    assert states is not None, said
    wrong = next((line for line in said.splitlines() if "assertion violated" in line), "an error")
    return Found(int(states[1]), wrong if int(errors[1]) else None)


def _run(folder: Path, *argv: str) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
    return done.stdout
