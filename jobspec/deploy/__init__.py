"""Whatever touches the world: observing what runs, and changing it step by step."""
