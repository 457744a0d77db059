"""jobctl's program inside an allocation of Slurm: the batch script becomes its coordinator, each node has a node runner.

The coordinator gives node numbers to the machines of the allocation, and those of a machine that is lost to a spare. A node
runner starts its node's launcher. What happens to processes, the launchers decide among themselves.
"""
