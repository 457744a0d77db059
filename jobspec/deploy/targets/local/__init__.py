"""The deployer of target `local`: nodes are processes of this machine."""
