"""The parts of the language that are mappings of their own, a file for each larger one."""
