"""A reader of shell that runs nothing: which commands a script would start, with which variables."""
