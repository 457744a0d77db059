"""What compiling costs: `jobctl validate` beside a bare interpreter, and `render` for many hosts.

    python benchmarks/compile.py [--runs 9] [--only validate|render]

Each figure is the median of runs that alternate with what they are compared with. `render` is measured from the
spec and the hosts file to the last file written, imports of jobctl included and the start of the interpreter not,
each time in a process of its own. Exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

SPEC = """\
name: resnet
framework: torch
image: pytorch/pytorch:2.13.0
script: train.py
args: [--epochs, "90", --lr, "0.1"]
nodes: {nodes}
devices: gpu:8
checkpoint: /shared/checkpoints/resnet
volumes: ["/data:/data:ro"]
env: {{OMP_NUM_THREADS: "8", NCCL_DEBUG: WARN}}
resources: {{shm_size: 16g}}
recovery: {{max_restarts: 5}}
"""
HOSTS = "gpu[00001-{nodes:05}] slots=8\n"

# The least that a program with a command line, YAML and a checked model has to import.
BARE = (
    "import yaml, typer; from pydantic import BaseModel; M = type('M', (BaseModel,), {'__annotations__': {'a': int}})"
)

MAX_VALIDATE = 1.5  # times BARE
MAX_GROWTH = 11.0  # times, from 1,000 to 10,000 hosts
MAX_PLAIN = 6.0  # times plain writing of the same files
MAX_MEMORY = 400.0  # MB
FEW, MANY = 1_000, 10_000


def main() -> int:
    options = _parser().parse_args()
    if options.measure:
        print(json.dumps(_MEASURES[options.measure[0]](*map(Path, options.measure[1:]))))
        return 0
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed jobctl has its bytecode
    with TemporaryDirectory(prefix="jobctl-compile-") as scratch:
        within = [
            compare(Path(scratch), options.runs)
            for name, compare in (("validate", compare_validate), ("render", compare_render))
            if options.only in (None, name)
        ]
    return 0 if all(within) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=9, help="runs of each (render: a third of it)")
    parser.add_argument("--only", choices=["validate", "render"])
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    return parser


# What is compared.


def compare_validate(scratch: Path, runs: int) -> bool:
    """Print the wall time of `jobctl validate` beside that of BARE; say whether it is within the limit."""
    job = _job(scratch / "validate", 4)
    jobctl = [str(Path(sys.executable).with_name("jobctl")), "validate", str(job / "job.yaml")]
    ours, bare = _alternate(runs, lambda: _wall(jobctl), lambda: _wall([sys.executable, "-c", BARE]))
    print(f"validate        {ours * 1000:7.0f} ms   bare interpreter {bare * 1000:.0f} ms")
    return _limit("validate / bare", ours / bare, MAX_VALIDATE, "x")


def compare_render(scratch: Path, runs: int) -> bool:
    """Print what `render` costs for few and for many hosts, and beside plain writing; say whether all is within."""
    few, many = _job(scratch / "few", FEW), _job(scratch / "many", MANY)
    rounds = max(1, runs // 3)
    rendered: list[tuple[float, float]] = []
    plain: list[float] = []
    few_times: list[float] = []
    for turn in range(rounds):
        few_times.append(_measure("render", few, scratch / f"few-{turn}")[0])
        rendered.append(_measure("render", many, scratch / f"many-{turn}"))
        plain.append(_measure("plain", scratch / f"many-{turn}", scratch / f"plain-{turn}")[0])
    few_time, many_time, plain_time = median(few_times), median(t for t, _ in rendered), median(plain)
    memory = max(megabytes for _, megabytes in rendered)
    print(f"render {FEW:6}   {few_time:9.2f} s    {few_time / FEW * 1e6:.0f} us a host")
    print(f"render {MANY:6}   {many_time:9.2f} s    {many_time / MANY * 1e6:.0f} us a host")
    print(f"plain writing   {plain_time:9.2f} s    {plain_time / MANY * 1e6:.0f} us a host")
    within = (
        _limit(f"render {MANY} / {FEW}", many_time / few_time, MAX_GROWTH, "x"),
        _limit("render / plain", many_time / plain_time, MAX_PLAIN, "x"),
        _limit("memory", memory, MAX_MEMORY, "MB"),
    )
    return all(within)


def _limit(name: str, value: float, most: float, unit: str) -> bool:
    print(f"  {name:22} {value:7.2f} {unit} (at most {most:g}) {'ok' if value <= most else 'EXCEEDED'}")
    return value <= most


# How it is measured.


def _alternate(runs: int, one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float]:
    one(), other()  # caches of the system and of bytecode are warm for both
    pairs = [(one(), other()) for _ in range(runs)]
    return median(a for a, _ in pairs), median(b for _, b in pairs)


def _wall(argv: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def _measure(what: str, *paths: Path) -> tuple[float, float]:
    """Return seconds and megabytes that one of `_MEASURES` took in a process of its own."""
    os.sync()  # what an earlier run left to be written is not this run's work
    argv = [sys.executable, __file__, "--measure", what, *map(str, paths)]
    seconds, megabytes = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)
    return seconds, megabytes


def _job(directory: Path, nodes: int) -> Path:
    directory.mkdir()
    (directory / "job.yaml").write_text(SPEC.format(nodes=nodes))
    (directory / "hosts.txt").write_text(HOSTS.format(nodes=nodes))
    (directory / "train.py").write_text("")
    return directory


# What is measured.


def render(job: Path, out: Path) -> tuple[float, float]:
    """Compile `job` into `out`, from its two files to the last artefact."""
    begin = time.perf_counter()
    from jobctl.jobspec.plan.generation import first_generation
    from jobctl.jobspec.planner import job as planner
    from jobctl.jobspec.planner.context import Context
    from jobctl.jobspec.render.artefact import render as artefacts
    from jobctl.jobspec.render.write import write
    from jobctl.jobspec.spec.hosts import load_hosts
    from jobctl.jobspec.spec.load import load_spec

    loaded, hosts = load_spec(job / "job.yaml", environ={}), load_hosts(job / "hosts.txt")
    if loaded.spec is None:
        raise SystemExit(f"the benchmark's spec is not valid: {loaded.diagnostics}")
    context = Context("compose", str(job), "ada@desk", "0")
    plan = planner.plan(loaded.spec, hosts.hosts, context)
    write(artefacts(plan, first_generation(plan)), out)
    return time.perf_counter() - begin, _peak()


def plain(rendered: Path, out: Path) -> tuple[float, float]:
    """Write the files of `rendered` once more, with nothing but Python."""
    files = [(str(path.relative_to(rendered)), path.read_bytes()) for path in rendered.rglob("*") if path.is_file()]
    begin = time.perf_counter()
    for path, content in files:
        os.makedirs(os.path.dirname(f"{out}/{path}"), exist_ok=True)
        with open(f"{out}/{path}", "wb") as file:
            file.write(content)
    return time.perf_counter() - begin, _peak()


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


_MEASURES = {"render": render, "plain": plain}

if __name__ == "__main__":
    sys.exit(main())
