"""From spec and hosts to a plan: every decision that can be made before anything runs."""

from jobctl.jobspec.planner.job import plan

__all__ = ["plan"]
