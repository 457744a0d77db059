"""Manifests of Kubernetes, read as the jobs that they start."""
