"""The language: what a user writes in `job.yaml` and `hosts.txt`, validated."""
