#!/bin/sh
# Locks the file $1 in the name of $2. $3: `break` takes it from its holder; `stay` creates nothing for a job that is down.
# Prints `held`; or `taken`, the age of the lock in seconds and the holder's own words, and ends; or `failed` and the reason;
# or, with `stay`, `gone` where the folder is not there. Other scripts go on after `held`: `unlock` lets go of the lock.
umask 077
# What find.sh names below /var/tmp, anybody may have made before: who owns it would have the lock and the secrets.
mine() {
  top=/var/tmp/jobctl-$(id -u)
  case $1 in "$top"/*) ;; *) return 0 ;; esac
  mkdir -- "$top" 2>/dev/null
  # shellcheck disable=SC2015,SC3067  # dash and busybox have -O too
  [ ! -L "$top" ] && [ -O "$top" ] || { echo "Permission denied: $top belongs to somebody else" >&2; return 1; }
}
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
