"""What the next generation of a node is started from: processes that have imported everything, and wait."""
