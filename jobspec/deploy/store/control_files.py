"""The control file of a run and the ledger beside it, on this machine."""

from __future__ import annotations

from pathlib import Path

from jobctl.jobspec.deploy.model.control import Control, Ledger, Unreadable, ledger_json, parse_control
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store.files import read_json, write_atomic
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.render.payload import control_json


def read_control(work: Path) -> Control:
    """Return the control file and ledger in the work directory `work`; empty where there is none. Raises DeployError."""
    run = work / "run"
    try:
        return parse_control(read_json(run / "control.json"), read_json(run / "ledger.json"))
    except Unreadable as bad:
        hint = f"use the version that brought the job up; or `rm {run / bad.file}`, then `jobctl down`"
        raise DeployError(bad.error(str(run)), hint) from bad


def write_generation(work: Path, generation: Generation) -> None:
    """Hand `generation` to the launchers of `work`."""
    write_atomic(work / "run" / "control.json", control_json(generation))


def write_ledger(work: Path, ledger: Ledger) -> None:
    """Keep `ledger`. Write it before the generation that follows from it: it is keyed by generation."""
    write_atomic(work / "run" / "ledger.json", ledger_json(ledger), 0o600)
