"""What launchers may do by themselves, where no supervisor runs."""

from __future__ import annotations

from dataclasses import replace

from jobctl.jobspec.frameworks.failure_patterns import DEFAULT_RULES
from jobctl.jobspec.plan.generation import FIRST_PORT, PORTS, AutonomyTerms, Base, Generation
from jobctl.jobspec.plan.types import Plan


def with_autonomy(plan: Plan, generation: Generation) -> Generation:
    """Return a generation with the restarts, the rules and the ports with which launchers begin those that follow it."""
    recovery, ports = plan.recovery, (FIRST_PORT, FIRST_PORT + PORTS - 1)
    base = Base(generation.number, generation.rendezvous.id)
    terms = AutonomyTerms(recovery.max_restarts, (*recovery.rules, *DEFAULT_RULES), ports, base=base)
    return replace(generation, autonomy=terms)
