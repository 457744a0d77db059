"""From spec and hosts to a plan: every decision that can be made before anything runs. `job.plan` makes it."""
