"""What a launcher says of its node: the report, progress and events."""
