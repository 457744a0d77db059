"""What `check` finds out about hosts before anything is started."""
