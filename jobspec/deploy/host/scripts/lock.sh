#!/bin/sh
# Locks the file $1 in the name of $2. $3: `break` takes it from its holder; `stay` creates nothing for a job that is down.
# Prints `held`; or `taken`, the age of the lock in seconds and the holder's own words, and ends; or `failed` and the reason;
# or, with `stay`, `gone` where the folder is not there. Other scripts go on after `held`: `unlock` lets go of the lock.
umask 077
# shellcheck source=mine.sh
. ./mine.sh
[ "$3" = stay ] || why=$({ mine "$1" && mkdir -p -- "${1%/*}" && : >> "$1"; } 2>&1) || { echo "failed $why"; exit 1; }
[ "$3" != break ] || rm -f -- "$1"
# shellcheck disable=SC3013  # dash and busybox have -ef too
ours() { [ /proc/self/fd/9 -ef "$1" ]; }
while :; do  # a file that was replaced meanwhile (`down`, `break`) is tried again
  [ "$3" != stay ] || [ -d "${1%/*}" ] || { echo gone; exit 0; }
  exec 9>>"$1" || exit 1
  flock -n 9 || { printf 'taken %s ' $(( $(date +%s) - $(stat -c %Y -- "$1") )); cat -- "$1"; echo; exit 0; }
  ours "$1" && break
done
printf '%s' "$2" > "$1"
lock=$1
unlock() { ! ours "$lock" || : > "$lock"; exec 9>&-; }
echo held
