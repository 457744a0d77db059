"""The deployers: of hosts, and of this machine."""
