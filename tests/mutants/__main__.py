"""Plant each bug in a copy of the tree, and see whether the test that its patch names notices it.

Exits with 0 if all are caught, otherwise with 1.
"""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .patches import Mutant, mutants
from .workshop import Workshop, timed


def main() -> int:
    options = _options()
    chosen = mutants(options.only)
    if not chosen:
        print(f"no planted bug has `{options.only}` in its name", file=sys.stderr)
        return 1
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name}\n    {mutant.sentence}\n    {mutant.test}")
        return 0
    width = max(len(mutant.name) for mutant in chosen)
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="jobctl-mutants-") as folder:
        for mutant, (verdict, seconds) in _tried(chosen, Path(folder), options.jobs):
            kind = verdict.partition(":")[0]
            counts[kind] = counts.get(kind, 0) + 1
            print(f"{mutant.name:{width}}  {verdict:12}  {seconds:5.1f}", flush=True)
    print(f"{len(chosen)} planted bugs: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 0 if counts == {"caught": len(chosen)} else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="WORD", default="", help="those with WORD in their names (PACKAGE/NAME)")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="how many are tried side by side")
    parser.add_argument("--list", action="store_true", help="print name, sentence and test of each, and try none")
    return parser.parse_args()


def _tried(chosen: list[Mutant], folder: Path, jobs: int) -> Iterator[tuple[Mutant, tuple[str, float]]]:
    """Yield each bug with what became of it, and seconds."""
    shops: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
    made = [Workshop(folder / str(number)) for number in range(max(1, min(jobs, len(chosen))))]
    for shop in made:
        shops.put(shop)
    passed = made[0].outcomes(mutant.test for mutant in chosen)

    def attempt(mutant: Mutant) -> tuple[str, float]:
        if passed[mutant.test] != "passed":
            return f"unclear: {passed[mutant.test]}", 0.0
        shop = shops.get()
        try:
            return timed(shop, mutant)
        finally:
            shops.put(shop)

    with ThreadPoolExecutor(len(made)) as pool:
        yield from zip(chosen, pool.map(attempt, chosen), strict=True)


sys.exit(main())
