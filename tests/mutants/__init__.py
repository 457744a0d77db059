"""Planted bugs: small patches that the tests have to notice. `python -m tests.mutants` tries each; see docs/testing.md."""
