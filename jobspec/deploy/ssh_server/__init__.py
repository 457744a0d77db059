"""An SSH server on this machine that leads into a node: for editors, which speak nothing else. Nothing of it is in images."""
