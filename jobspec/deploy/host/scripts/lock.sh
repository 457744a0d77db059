#!/bin/sh
# Locks the file $1 in the name of $2. $3: `break` takes it from its holder; `stay` creates nothing for a job that is down.
# $4: the job's work directory. Prints `held`; or `taken`, the age of the lock in seconds and the holder's own words, and ends;
# or `failed` and the reason; or, with `stay`, `gone` where the folder is not there. Other scripts go on after `held`: `unlock`
# lets go of the lock.
umask 077
# shellcheck source=mine.sh
. ./mine.sh
lock=$1 folder=${1%/*} place=$4 how=$3
# Where the folders are not ours, or by a link, what is written into the lock may replace any file of the user.
allowed() {
  [ "$place" = "$folder" ] || mine "$place" || return
  mine "$folder" || return
  [ -z "$nothing" ] || [ "$1" = new ] || { echo "$folder was removed" >&2; return 1; }
  [ ! -L "$lock" ] || { echo "Permission denied: $lock is a link" >&2; return 1; }
}
made() { mkdir -p -- "$folder" && allowed && : >> "$lock"; }
[ "$how" = stay ] || why=$({ allowed new && made; } 2>&1) || { echo "failed $why"; exit 1; }
# shellcheck disable=SC3013  # dash and busybox have -ef too
ours() { [ /proc/self/fd/9 -ef "$1" ]; }
gone() { [ "$how" = stay ] && [ ! -d "$folder" ]; }
while :; do  # a file that was replaced meanwhile (`down`, `break`) is tried again
  ! gone || { echo gone; exit 0; }
  why=$(allowed 2>&1) || { ! gone || { echo gone; exit 0; }; echo "failed $why"; exit 1; }
  [ "$how" != break ] || { rm -f -- "$lock"; how=; }
  exec 9>>"$lock" || exit 1
  flock -n 9 || { printf 'taken %s ' $(( $(date +%s) - $(stat -c %Y -- "$lock") )); cat -- "$lock"; echo; exit 0; }
  ours "$lock" && break
done
chmod 1600 -- "$lock" # systemd-tmpfiles leaves it in /var/tmp then, however long it is held
printf '%s' "$2" > "$lock"
unlock() { ! ours "$lock" || : > "$lock"; exec 9>&-; }
echo held
