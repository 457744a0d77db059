"""The command `jobctl`: one module per group of commands, and the only place that prints."""
