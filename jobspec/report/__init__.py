"""What became of a job: its runs, failures and figures, as text and as a page."""
