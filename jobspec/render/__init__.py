"""From a plan to the bytes that are sent to hosts."""
