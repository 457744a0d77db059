"""What has to be done to a job, step by step, and what does it."""
