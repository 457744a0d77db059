"""What differs between targets for operations: which one is meant, and how its jobs are found, planned and checked."""
