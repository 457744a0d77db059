"""What a caller means: a spec with its target and hosts, a job that is known, whose it is, and its plan."""
