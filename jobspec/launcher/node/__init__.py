"""The launcher of a node, and of a host that waits for one."""
