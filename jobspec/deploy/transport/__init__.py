"""How hosts are reached: SSH, or this machine, and commands on them."""
