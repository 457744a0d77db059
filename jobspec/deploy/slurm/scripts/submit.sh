#!/bin/sh
# Submits the batch script of a job, unless Slurm has that job already, and prints `submitted ID` or `there ID`.
# $1: the job's directory, $2: its name, $3: the comment by which the queue knows it; the others are names of variables that
# Slurm does not get. What comes on stdin, if anything does, becomes `run/sent.json` of a new job. A second call waits for
# the lock. It ends with 75 if Slurm does not say whether it has the job, and with 77 where the directory is not ours.
# Its own variables have names of their own: Slurm gets the environment, and the user's may have any.
. ./plain.sh
# shellcheck source=../../host/scripts/mine.sh
. ../../host/scripts/mine.sh
set -u
jobctl_work=$1 jobctl_name=$2 jobctl_mark=$3; shift 3
jobctl_sent=$(cat)
(mine "$jobctl_work") || exit 77
cd -- "$jobctl_work" || exit
exec 9>>run/submit.lock
# Shared storage may have no locks at all, and says so by another code: the queue alone has to tell then.
flock -w 60 9 2>/dev/null || [ $? != 1 ] || { echo "another submission has not ended" >&2; exit 75; }
jobctl_found=$(plain squeue --noheader --user "$(id -un)" --name "$jobctl_name" --format '%i|%T|%k') || exit 75
jobctl_id=$(
  printf '%s\n' "$jobctl_found" | grep -vE "^[^|]*\|($jobctl_over)\|" |
    while IFS='|' read -r one _ comment; do [ "$comment" != "$jobctl_mark" ] || echo "$one"; done
)
jobctl_id=$(printf '%s\n' "$jobctl_id" | head -n 1)
if [ -z "$jobctl_id" ] && [ -s run/job_id ]; then
  # An empty queue alone is no proof.
  jobctl_known=$(cat run/job_id)
  if jobctl_said=$(plain scontrol show job --oneliner "$jobctl_known" 2>&1); then
    # Another job may have its number by now.
    case "$jobctl_said " in *" JobName=$jobctl_name "*|*" Comment=$jobctl_mark "*) ;; *) jobctl_said= ;; esac
    case $jobctl_said in
    *" JobState=PENDING "*|*" JobState=CONFIGURING "*|*" JobState=RUNNING "*) jobctl_id=$jobctl_known ;;
    *" JobState=SUSPENDED "*|*" JobState=COMPLETING "*) jobctl_id=$jobctl_known ;;
    esac
  else
    case $jobctl_said in *"Invalid job id"*) ;; *) printf '%s\n' "$jobctl_said" >&2; exit 75 ;; esac
  fi
fi
if [ -n "$jobctl_id" ]; then
  printf '%s\n' "$jobctl_id" > run/job_id
  echo "there $jobctl_id"; exit
fi
for jobctl_variable do unset "$jobctl_variable"; done
# What was before is over: nobody who looks now takes it for the job. With `pull: always` each submission fetches the image.
rm -rf -- run/job_id run/allocation.json run/order.json image
[ -z "$jobctl_sent" ] || { printf '%s\n' "$jobctl_sent" > run/sent.new && mv -f -- run/sent.new run/sent.json; } || exit
jobctl_said=$(sbatch --parsable job.sbatch) || exit
# A cluster's own `sbatch` may print more than that.
jobctl_id=$(printf '%s\n' "$jobctl_said" | sed -n 's/^\([0-9][0-9]*\)\(;.*\)*$/\1/p' | tail -n 1)
[ -n "$jobctl_id" ] || { printf 'sbatch names no job\n%s\n' "$jobctl_said" >&2; exit 1; }
printf '%s\n' "$jobctl_id" > run/job_id
echo "submitted $jobctl_id"
