"""The deployers: of hosts, and in `local` of this machine."""
