"""One process of a node: its guard, its log, and what is written down of it."""
