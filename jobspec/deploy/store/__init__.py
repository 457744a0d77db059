"""What this machine keeps of jobs, on its disk."""
