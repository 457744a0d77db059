"""Bringing a job up, changing it, waiting for it, and taking it down."""
