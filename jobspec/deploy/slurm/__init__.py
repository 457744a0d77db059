"""Target `slurm`: a job in an allocation of Slurm, submitted and looked at through a login node."""
