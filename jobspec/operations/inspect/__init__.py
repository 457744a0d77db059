"""Looking at a job and into it, which changes nothing of it."""
