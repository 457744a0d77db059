"""What makes a spec wrong that pydantic cannot tell: rules across fields, for targets, for clusters, and their codes."""
