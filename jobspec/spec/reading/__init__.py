"""From the text of a file to plain data: YAML with places, variables, and what is wrong with it."""
