#!/bin/sh
# Removes the work directory $1 and the directory $2 of what is the host's own, and the folders above them that are empty
# then and jobctl's. A supervisor that follows the job from elsewhere leaves first. The lock goes last, and its folder is moved
# away with it: until then every command that wants the lock sees that it is taken, and from then on that there is no job.
# Somebody else may remove the same at the same time: `jobctl run`, whose command `down` has just ended. Prints nothing.
# It ends with 1, and leaves the rest, where the lock has changed hands meanwhile: it was given up by the command that began it.
# It ends with 77, and removes nothing, where one of them is not ours.
# shellcheck source=tidy.sh
. ./tidy.sh
# shellcheck source=mine.sh
. ./mine.sh
for top do mine "$top" || exit 77; done
lock=$2/lock holder=$(cat -- "$2/lock" 2>/dev/null)
rm -f -- "$1"/run/feeds/*
tries=50
while [ $tries -gt 0 ] && [ -e "$2/supervisor.lock" ] && ! flock -n "$2/supervisor.lock" true; do
  sleep 0.1; tries=$((tries - 1))
done
same() {
  ! now=$(cat -- "$lock" 2>/dev/null) || [ "$now" = "$holder" ] || { echo "another command has the lock" >&2; return 1; }
}
empty() {
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    same || return
    [ "${entry##*/}" = lock ] || rm -rf -- "$entry" 2>/dev/null || rm -rf -- "$entry" || return
  done
}
for top do # what is not there now may be made by anybody before it is looked at once more
  mine "$top" || exit 77
  [ -n "$nothing" ] || [ ! -d "$top" ] || empty "$top" || exit
done
for top do
  same || exit
  mine "$top" || exit 77
  [ -z "$nothing" ] || continue
  gone=${top%/*}/.${top##*/}
  if [ -d "$top" ]; then mv -- "$top" "$gone.$$" || [ ! -d "$top" ] || exit; fi
  rm -rf -- "$gone".* || exit
  ! rmdir -- "${top%/*}" 2>/dev/null || tidy "${top%/*/*}"
done
