"""What several commands show: states, plans, findings, events, progress."""
