#!/bin/sh
# Runs a command of Slurm's without what its user has set for it, such as SQUEUE_STATES and SCANCEL_INTERACTIVE: that changes what
# it lists, cancels or prints, or has it ask a person. It prints times in seconds. Other scripts begin with it; in an allocation,
# allocation/slurm_environ.py does the same. `jobctl_over`: how jobs are that have ended.
plain() (
  for name in $(env | sed -nE 's/^((SQUEUE|SCANCEL|SCONTROL|SINFO|SACCT)_[A-Za-z0-9_]*)=.*/\1/p'); do unset "$name"; done
  export SLURM_TIME_FORMAT=%s
  exec "$@"
)
# shellcheck disable=SC2034 # for those that begin with it
jobctl_over='COMPLETED|CANCELLED|FAILED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE|REVOKED|LAUNCH_FAILED'
