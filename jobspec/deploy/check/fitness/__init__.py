"""Fitness: how fast hosts are, whether they compute right, and which of them differ from the others."""
