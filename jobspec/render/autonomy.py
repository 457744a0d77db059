"""What launchers may do by themselves, where no supervisor runs."""

from __future__ import annotations

from jobctl.jobspec.frameworks.failure_patterns import DEFAULT_RULES
from jobctl.jobspec.plan.generation import FIRST_PORT, PORTS, AutonomyTerms
from jobctl.jobspec.plan.types import Plan


def autonomy(plan: Plan) -> AutonomyTerms:
    """Return the restarts, the rules and the ports with which launchers begin generations by themselves."""
    recovery = plan.recovery
    return AutonomyTerms(recovery.max_restarts, (*recovery.rules, *DEFAULT_RULES), (FIRST_PORT, FIRST_PORT + PORTS - 1))
