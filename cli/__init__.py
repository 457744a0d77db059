"""The command `jobctl`: a module for each command, what several print, and the only place that prints."""
