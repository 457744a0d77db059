"""One module for each command that a user types: its arguments and options, and what it prints."""
