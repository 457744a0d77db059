"""Fitness checks of real hosts, some of which are not fit: which hosts it names, and how long it takes.

    sudo python -m tests.fleet.check.fitness_campaign --seed 1 --faults 20 --healthy 50 [--hosts 8] [--mode quick] [--minutes 60]

Each round draws one or more hosts with a fault each, or none. A round is right if the check accuses exactly these hosts,
each with the code of its fault. The past of hosts is kept from round to round, as it is for a user. All hosts are this
machine, and whatever else runs here disturbs them: the table has its load.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.fleet.check.unfit import FAULTS, HEALTHY, Fault, wire_packets
from tests.fleet.fleet import Fleet, fleet
from tests.fleet.jobs import SPEC, Jobs

Accused = set[tuple[str, str, str]]  # host, check and code
NONE = "healthy"
FEW = 6  # hosts, of which two with slow links may leave no pair of healthy ones
AT_ONCE = 4  # hosts of a round that have a fault, at most; no more than half of all


@dataclass
class Tally:
    """What came of the rounds with a fault: how often it was named, and how long each of these checks took."""

    right: int = 0
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)

    def add(self, right: bool, seconds: float) -> None:
        """Count one more."""
        self.right += right
        self.wrong += not right
        self.seconds.append(seconds)


def schedule(chance: random.Random, hosts: Sequence[str], faults: int, healthy: int) -> list[dict[str, Fault]]:
    """Return rounds in a random order, by host what is wrong with it: each fault so many times, and rounds without any."""
    left = {fault.name: faults for fault in FAULTS}
    by_name = {fault.name: fault for fault in FAULTS}
    rounds: list[dict[str, Fault]] = [{} for _ in range(healthy)]
    while any(left.values()):
        most = max(left.values())
        # The most frequent one is always among them, so that none is left alone at the end.
        names = sorted(left, key=lambda name: (left[name] < most, chance.random()))
        names = [name for name in names if left[name]]
        if len(hosts) < FEW:
            links = [name for name in names if by_name[name].check == "link"]
            names = [name for name in names if name not in links[1:]]
        names = names[: chance.randint(1, max(1, min(AT_ONCE, len(hosts) // 2)))]
        for name in names:
            left[name] -= 1
        rounds.append({host: by_name[name] for host, name in zip(chance.sample(hosts, len(names)), names, strict=True)})
    chance.shuffle(rounds)
    return rounds


class FitnessCampaign:
    """A fleet, a job for it, and what came of its rounds."""

    def __init__(self, directory: Path, made: Fleet, mode: str) -> None:
        self.made, self.mode = made, mode
        self.jobs = Jobs(directory, made, SPEC.replace("nodes: 2", f"nodes: {len(made.hosts)}"))
        self.tallies = {name: Tally() for name in [NONE, *(fault.name for fault in FAULTS)]}
        self.falsely: list[tuple[int, str, str, str]] = []  # round, and who was accused for nothing
        self.loads: list[float] = []
        for host in made.hosts:
            wire_packets(host)

    def play(self, number: int, bad: Mapping[str, Fault]) -> None:
        """Make the hosts so, check them, and compare what is said."""
        for host in self.made.hosts:
            others = [other for other in self.made.hosts if other is not host]
            fault = bad.get(host.name)
            (fault.condition if fault else HEALTHY).of(host, others, self.jobs.checkpoints)
        began = time.monotonic()
        done = self.jobs.run("check", *self.jobs.where, "--target", "ssh", f"--fitness={self.mode}", "-o", "json")
        took = time.monotonic() - began
        self.loads.append(os.getloadavg()[0])
        findings = json.loads(done.stdout)["findings"] if done.returncode in (0, 3) else []
        accused: Accused = {(f["host"], f["check"], f["code"]) for f in findings if f["verdict"] == "error"}
        expected: Accused = {(name, fault.check, fault.code) for name, fault in bad.items()}
        ran = bool(findings)
        self.falsely += [(number, *one) for one in sorted(accused - expected)]
        for name, fault in bad.items():
            self.tallies[fault.name].add((name, fault.check, fault.code) in accused, took)
        if not bad:
            self.tallies[NONE].add(ran and not accused, took)
        right = ran and accused == expected
        what = ", ".join(f"{host}: {fault.name}" for host, fault in sorted(bad.items())) or NONE
        print(
            f"{number:4} {'right' if right else 'WRONG'} {took:5.1f} s, load {self.loads[-1]:.0f}: {what}", flush=True
        )
        if not right:
            for line in (*told(findings, accused ^ expected), *done.stderr.splitlines()[:20]):
                print(f"       {line}", flush=True)

    def table(self) -> Iterator[str]:
        """Yield the lines of the table."""
        yield "| fault | rounds | right | wrong | seconds: median | max |"
        yield "|---|---|---|---|---|---|"
        for name, one in self.tallies.items():
            times = f"{median(one.seconds):.0f} | {max(one.seconds):.0f}" if one.seconds else "- | -"
            yield f"| {name} | {len(one.seconds)} | {one.right} | {one.wrong} | {times} |"

    @property
    def wrong(self) -> int:
        """How much was not right."""
        return sum(one.wrong for one in self.tallies.values()) + len(self.falsely)


def told(findings: Sequence[Mapping[str, Any]], about: Accused) -> Iterator[str]:
    """Yield what was measured in the checks that were not right, of all hosts."""
    for check in sorted({check for _, check, _ in about}):
        for one in findings:
            if one["check"] == check:
                yield f"{one['host']} {check} {one['verdict']} {one['code']}: {one['message']}"


def main() -> int:
    """Play the rounds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=20, help="how often each fault is played (default: 20)")
    parser.add_argument("--healthy", type=int, default=50, help="rounds without a fault (default: 50)")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--mode", choices=("quick", "full"), default="quick")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no round after so long (default: 600)")
    parser.add_argument("--only", default="", metavar="WORD", help="faults with this in their names")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with fleet(options.hosts) as made, TemporaryDirectory(prefix="jobctl-campaign-") as directory:
        one = FitnessCampaign(Path(directory), made, options.mode)
        rounds = schedule(chance, [host.name for host in made.hosts], options.faults, options.healthy)
        end = time.monotonic() + 60 * options.minutes
        for number, bad in enumerate(rounds):
            if time.monotonic() > end:
                break
            one.play(number, {host: fault for host, fault in bad.items() if options.only in fault.name})
    loads = f"load {min(one.loads):.0f} to {max(one.loads):.0f}, median {median(one.loads):.0f}"
    print(f"\nseed {options.seed}, {options.hosts} hosts, {options.mode}, {os.cpu_count()} cores, {loads}:\n")
    print("\n".join(one.table()))
    for number, host, check, code in one.falsely:
        print(f"accused for nothing in round {number}: {host}, {check}: {code}")
    right = sum(tally.right for tally in one.tallies.values())
    print(f"{right} right, {one.wrong} wrong")
    return 1 if one.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
