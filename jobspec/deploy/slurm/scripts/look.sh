#!/bin/sh
# Prints what Slurm and the job's own files say of a job. $1: the job's directory, $2: its name, $3: `all`, or `files` to leave
# Slurm alone. A line `== WORD` begins each part, a line `== CODE` ends it with the exit code of what was asked; the last part
# is a tar. Texts only: the JSON of Slurm's commands differs from version to version.
. ./plain.sh
work=$1 name=$2
part() {
  echo "== $1"; shift
  plain "$@" 2>&1 </dev/null
  code=$?
  printf '\n== %s\n' "$code"
  return "$code"
}
# How many seconds ago the job's own program has written down how it is, by the one clock of the file system: that of this
# machine and that of the program may differ. A file that is opened is the newest one also where names are cached (NFS).
# Where nothing may be written there, the clock of this machine has to do.
age() (
  cd -- "$work/run" && written=$(stat -Lc %Y /dev/stdin <allocation.json) || exit
  now=$(touch clock && stat -Lc %Y /dev/stdin <clock || date +%s) && echo $((now - written))
)
old=$(age 2>/dev/null)
# Whether that was just now. Commands need half a minute to give up on a controller.
fresh() { [ -n "$old" ] && [ "$old" -lt 10 ]; }
id=$(cat -- "$work/run/job_id" 2>/dev/null)
echo "== known"; printf '%s %s\n' "$(date +%s)" "$id"; echo "== 0"
echo "== age"; echo "$old"; echo "== 0"
if [ "$3" = all ]; then
  if ! part squeue squeue --noheader --user "$(id -un)" --name "$name" --format '%i|%T|%r|%S|%L|%N|%k' && fresh; then
    :
  elif [ -n "$id" ]; then
    part scontrol scontrol show job --oneliner "$id"
    if command -v sacct >/dev/null; then
      part sacct sacct --noheader --parsable2 --allocations --jobs "$id" --format JobIDRaw,State,ExitCode
    fi
  fi
fi
# The last line that the job has printed, with a colon before it, as the job may print what looks like parts of this. What is older
# than `up` is of an allocation before.
said() {
  cd -- "$work" && [ -n "$(find slurm.out -newer run/start.json 2>/dev/null)" ] || return
  tail -c 4096 slurm.out | tr -d '\000-\010\013-\037\177' | sed -n 's/^[[:space:]]*\([^[:space:]].*\)$/:\1/p' | tail -n 1
}
if [ "$3" = all ]; then echo "== said"; (said) 2>/dev/null; printf "\n== 0\n"; fi
# Removes what commands of `jobctl run` have left whose processes were all killed: what runs touches its directory every minute.
# Slurm keeps the machine of a killed `srun`, so that job is cancelled too. One that waits for a machine is left alone. Only
# `scontrol` never prints nothing, unless it does not tell the truth.
sweep() {
  left=$(find "${work%/*}" -maxdepth 1 -type d -name '.look-*' -user "$(id -u)" -mmin +60)
  [ -n "$left" ] && queue=$(plain scontrol show job --oneliner) && [ -n "$queue" ] || return
  queue=$(printf '%s\n' "$queue" | grep -vE " JobState=($jobctl_over) ")
  printf '%s\n' "$left" | while IFS= read -r look; do
    has=$(printf '%s\n' "$queue" | grep -F -- "Comment=jobctl $look")
    runs=$(printf '%s\n' "$has" | sed -n 's/^JobId=\([0-9]*\) .* JobState=RUNNING .*/\1/p')
    if [ -n "$runs" ]; then plain scancel "$runs"; elif [ -n "$has" ]; then continue; fi
    rm -rf -- "$look"
  done
}
[ "$3" != all ] || sweep </dev/null >/dev/null 2>&1
echo "== files"
cd -- "$work" 2>/dev/null || exit 0
set -- .
for file in run/*.json node-*/report.json; do [ ! -f "$file" ] || set -- "$@" "$file"; done
tar --no-recursion -cf - -- "$@" 2>/dev/null
:  # a file that changes while it is read is no error: it is read again soon
