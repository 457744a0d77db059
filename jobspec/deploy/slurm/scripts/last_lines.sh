#!/bin/sh
# Prints the last lines of what the batch script has printed. $1: the job's directory.
exec tail -n 20 -- "$1/slurm.out"
