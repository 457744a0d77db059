"""A drill for people: what it breaks, and how the job recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl import console

if TYPE_CHECKING:
    from jobctl.jobspec.operations.lifecycle.drill import Drill, Fault, Witness

_SAW_IT: dict[Witness | None, str] = {
    "supervisor": "the supervisor saw it",
    "launchers": "the launchers saw it",
    "allocation": "the coordinator of the allocation saw it",
}


def show_drill(fault: Fault, drill: Drill) -> None:
    """Print what was broken, and how the job recovered."""
    at = f" at step {drill.before}" if drill.before is not None else ""
    console.out(f"{fault.words[1]}{at}, in generation {drill.generation}")
    rows = [
        ("detected", drill.seconds.detected, _SAW_IT.get(drill.detected_by, "")),
        ("stopped", drill.seconds.stopped, "what was left had ended, and the next generation began"),
        ("running", drill.seconds.running, "all nodes run again"),
        ("training", drill.seconds.training, f"first step seen: {drill.after}"),
    ]
    lines = [(name, f"{seconds:.2f} s", what) for name, seconds, what in rows if seconds is not None]
    console.out(console.table(("", "AFTER", ""), lines))
    if drill.continued is False:
        console.error(
            f"training began from the beginning: step {drill.before} was reached before, {drill.after} after",
            "does the script read its checkpoint from $JOBCTL_CHECKPOINT_DIR, and is that shared by all hosts?",
        )
    elif drill.continued:
        console.say("the job went on from its checkpoint")
    else:
        console.say("the job runs again; from the steps alone it cannot be told where it went on")
