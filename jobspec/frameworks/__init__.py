"""One module per framework: from a place in the plan to argv, env and recovery."""
