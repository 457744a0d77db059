"""What start commands mean: a table of options for each launcher."""
