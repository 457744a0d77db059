#!/bin/sh
# Submits the batch script of a job, unless Slurm has that job already, and prints `submitted ID` or `there ID`.
# $1: the job's directory, $2: its name, $3: the comment by which the queue knows it; the others are names of variables that
# Slurm does not get. What comes on stdin, if anything does, becomes `run/sent.json` of a new job. A second call waits for
# the lock. It ends with 75 if Slurm does not say whether it has the job.
set -u
work=$1 name=$2 mark=$3; shift 3
sent=$(cat)
cd -- "$work" || exit
exec 9>>run/submit.lock
flock -w 60 9 || { echo "another submission has not ended" >&2; exit 75; }
found=$(squeue --noheader --user "$(id -un)" --name "$name" --format '%i|%k') || exit 75
id=$(printf '%s\n' "$found" | while IFS='|' read -r one comment; do [ "$comment" != "$mark" ] || echo "$one"; done)
id=$(printf '%s\n' "$id" | head -n 1)
if [ -z "$id" ] && [ -s run/job_id ]; then
  # An empty queue alone is no proof.
  known=$(cat run/job_id)
  if said=$(scontrol show job --oneliner "$known" 2>&1); then
    case "$said " in *" JobName=$name "*|*" Comment=$mark "*) ;; *) said= ;; esac  # another one may have its number by now
    case $said in
    *" JobState=PENDING "*|*" JobState=CONFIGURING "*|*" JobState=RUNNING "*) id=$known ;;
    *" JobState=SUSPENDED "*|*" JobState=COMPLETING "*) id=$known ;;
    esac
  else
    case $said in *"Invalid job id"*) ;; *) printf '%s\n' "$said" >&2; exit 75 ;; esac
  fi
fi
if [ -n "$id" ]; then
  printf '%s\n' "$id" > run/job_id
  echo "there $id"; exit
fi
for variable do unset "$variable"; done
# What was before is over: nobody who looks now takes it for the job. With `pull: always` each submission fetches the image.
rm -rf -- run/job_id run/allocation.json run/order.json image
[ -z "$sent" ] || { printf '%s\n' "$sent" > run/sent.new && mv -f -- run/sent.new run/sent.json; } || exit
said=$(sbatch --parsable job.sbatch) || exit
id=${said%%;*}
printf '%s\n' "$id" > run/job_id
echo "submitted $id"
