"""Keeping a job alive: what to do about what is observed, and the loop that does it."""
