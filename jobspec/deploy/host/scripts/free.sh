#!/bin/sh
# Prints how many kilobytes are free in the first of these directories that is there, and its path; nothing if none is.
# shellcheck source=kilobytes.sh
. ./kilobytes.sh
for path do
  [ -d "$path" ] || continue
  printf '%s %s\n' "$(kilobytes "$path")" "$path"
  exit 0
done
