#!/bin/sh
# Prints what a command of Slurm's does, `$@`.
. ./plain.sh
plain "$@"
