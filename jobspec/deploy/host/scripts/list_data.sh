#!/bin/sh
# Prints on a line each: how many kilobytes are free below $1, the stamp of what an interrupted transfer has left there, and the
# newest version of data. Then come the digests of all files of that version and of such a transfer, a zero byte, and mode, size,
# number of names and path of each, with a zero byte at its end. With $2, nothing of the version.
at=$1
while [ ! -d "$at" ]; do at=${at%/*}; at=${at:-/}; done
# shellcheck source=kilobytes.sh
. ./kilobytes.sh
printf '%s\n' "$(kilobytes "$at")"
cd -- "$1" 2>/dev/null || exit 0
# shellcheck source=lock_data.sh
. ./lock_data.sh
printf '%s\n' "$(cat .stamp 2>/dev/null)"
exec 9>&-
# shellcheck disable=SC2010,SC2012  # names are hashes, and `ls` sorts by time
base=$(ls -t | grep -vx incomplete | head -n 1)
printf '%s\n' "$base"
[ -z "$2" ] && [ -n "$base" ] || base=
LC_ALL=C; export LC_ALL
{
  [ -z "$base" ] || find "./$base" -type f -exec sha256sum -- {} +
  [ ! -d incomplete ] || find ./incomplete -type f -links 1 -exec sha256sum -- {} +
  printf '\0'
  for path in "$base" incomplete; do
    [ -z "$path" ] || [ ! -d "$path" ] || find "./$path" -type f -printf '%m %s %n %p\0'
  done
} 2>/dev/null
