"""Batch scripts of Slurm: `#SBATCH` lines, `srun`, and the usual ways to find the first node."""
