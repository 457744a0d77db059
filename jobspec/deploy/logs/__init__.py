"""Reading the logs of a job as they grow."""
