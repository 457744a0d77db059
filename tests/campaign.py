"""What is run by hand before a release: hours of random faults, worlds and schedules, and the benchmarks.

    sudo python -m tests.campaign --list            # what there is
    sudo python -m tests.campaign --only fleet      # those with a word in their names
    sudo python -m tests.campaign --seed 7          # other faults than the last time

Each part is a command of its own. Its output goes to a file, and the table at the end says how it went, in the form
that docs/testing.md keeps. The Python needs the packages of the tests. It exits with 0 only if every part did.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = ("-m", "pytest", "-q")


@dataclass(frozen=True)
class Part:
    """A part of the campaign: a name, what Python runs, and the variables that say how much of it."""

    name: str
    argv: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """What a person types to run it."""
        return " ".join([*(f"{name}={value}" for name, value in self.environ.items()), "python", *self.argv])


def parts(seed: int, faults: int) -> Iterator[Part]:
    """Yield all parts; `seed` chooses the faults, `faults` is how many a job without a framework has."""
    for number, (kind, options) in enumerate(
        {
            "fixed": (),
            "elastic": ("--elastic",),
            "etcd": ("--etcd",),
            "elastic-etcd": ("--elastic", "--etcd"),
            "alone": ("--alone",),
            "elastic-alone": ("--elastic", "--alone"),
        }.items()
    ):
        notify = () if "--alone" in options else ("--notify",)  # it is the supervisor that tells
        yield _fleet(f"fleet-{kind}", "light", seed + number, faults, *notify, *options)
    for engine in ("podman", "docker26", "containerd", "podman5"):
        yield _fleet(f"fleet-{engine}", "light", seed, faults, "--engine", engine)
    yield _tests("engines", "tests/contract", {"JOBCTL_TEST_ENGINES": "all"})
    yield _tests("stores", "tests/fleet/images/test_stores.py", {"JOBCTL_FLEET": "required"})
    for framework in ("torch", "torch-ps", "jax", "mindspore", "paddle", "paddle-ps", "paddle-elastic"):
        yield _fleet(f"fleet-{framework}", framework, seed, max(1, faults // 5))
    often = {"JOBCTL_TEST_SEED": str(seed), "JOBCTL_TEST_SCHEDULES": "30", "JOBCTL_TEST_KILLS": "30"}
    yield _tests("schedules", "tests/fleet/life/test_faults.py", {**often, "JOBCTL_TEST_CUTS": "20"})
    transfers = {"JOBCTL_TEST_SEED": str(seed), "JOBCTL_TEST_TRANSFERS": "30"}
    yield _tests("transfers", "tests/deploy/images/test_killed_transfers.py", transfers)
    yield _tests("transfers-data", "tests/deploy/sending/test_killed_data.py", transfers)
    yield from _worlds()
    yield _tests("protocol", "tests/protocol", {"JOBCTL_TEST_MODEL": "large"})
    yield _tests("pods", "tests/cluster/test_none.py", {"JOBCTL_TEST_PODS": "30", "JOBCTL_TEST_SEED": str(seed)})
    for number, options in enumerate(((), ("--elastic",), ("--newer",), ("--elastic", "--newer"))):
        how = ("--seed", str(seed + number), "--faults", str(max(1, faults // 2)), "--notify", *options)
        yield Part(
            "-".join(["slurm", *(option.strip("-") for option in options)]), ("-m", "tests.slurm.campaign", *how)
        )
    yield Part("fitness", ("-m", "tests.fleet.check.fitness_campaign", "--seed", str(seed), "--healthy", "50"))
    required = {"JOBCTL_FLEET": "required", "JOBCTL_FRAMEWORKS": "required"}
    yield _tests("variants", "tests", required, "--release", "-n", "4", "--dist", "loadfile")
    yield Part("mutants", ("-m", "tests.mutants", "--jobs", "2"))
    for name in ("startup", "compile", "code", "fitness", "forward", "hosts", "recovery", "supervise", "slurm", "ui"):
        yield Part(f"benchmark-{name}", (f"benchmarks/{name}.py",))
    yield from _recoveries()
    yield Part("benchmark-slurm-newer", ("benchmarks/slurm.py", "--newer"))


def _fleet(name: str, framework: str, seed: int, faults: int, *options: str) -> Part:
    how = ("--framework", framework, "--seed", str(seed), "--faults", str(faults))
    return Part(name, ("-m", "tests.fleet.campaign", *how, *options))


def _worlds() -> Iterator[Part]:
    """Yield the worlds, and the examples of properties."""
    yield _tests("worlds", "tests/supervise", {"JOBCTL_TEST_WORLDS": "10000"})
    properties = ("tests/spec/test_properties.py", "tests/importers/test_properties.py")
    yield _tests("properties", "tests/deploy/model/test_untrusted.py", {"JOBCTL_TEST_WORLDS": "3000"}, *properties)


def _recoveries() -> Iterator[Part]:
    """Yield what benchmarks/recovery.py measures beside PyTorch from standby."""
    for framework in ("jax", "paddle", "mindspore"):
        yield Part(f"benchmark-recovery-{framework}", ("benchmarks/recovery.py", "--framework", framework))
    for what in ("cold", "hot-spares", "price"):
        yield Part(f"benchmark-recovery-{what}", ("benchmarks/recovery.py", f"--{what}"))


def _tests(name: str, path: str, environ: dict[str, str], *options: str) -> Part:
    return Part(name, (*PYTEST, path, *options), environ)


def run(part: Part, logs: Path) -> tuple[str, str, float]:
    """Run a part; return how it ended, its last line, and how many seconds it took."""
    path, began = logs / f"{part.name}.log", time.monotonic()
    with path.open("wb") as log:
        environ = {**os.environ, **part.environ}
        code = subprocess.run(
            [sys.executable, *part.argv], cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ).returncode
    lines = path.read_text(errors="replace").strip().splitlines() or [""]
    return "passed" if code == 0 else f"exit code {code}", lines[-1].strip("= "), time.monotonic() - began


def commit() -> str:
    """Return the commit that lies here, with a mark if anything was changed."""
    argv = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    """Run the parts that were asked for, one after the other, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=100, help="faults of a job without a framework (default: 100)")
    parser.add_argument("--only", default="", metavar="WORD", help="the parts with this in their names")
    parser.add_argument("--list", action="store_true", help="print the parts and their commands, and run nothing")
    options = parser.parse_args()
    chosen = [part for part in parts(options.seed, options.faults) if options.only in part.name]
    if options.list:
        print("\n".join(f"{part.name:20} {part.line}" for part in chosen))
        return 0
    logs = Path(tempfile.mkdtemp(prefix="jobctl-campaign-"))
    rows = []
    for part in chosen:
        print(f"{part.name}: {part.line}\n  output in {logs / part.name}.log", flush=True)
        outcome, last, seconds = run(part, logs)
        rows.append((part.name, outcome, last, seconds))
        print(f"  {outcome} after {seconds:.0f} s: {last}", flush=True)
    print(f"\nat {commit()}, seed {options.seed}:\n\n| part | outcome | last line | minutes |\n|---|---|---|---|")
    for name, outcome, last, seconds in rows:
        print(f"| {name} | {outcome} | {last} | {seconds / 60:.0f} |")
    return 0 if chosen and all(outcome == "passed" for _, outcome, _, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
