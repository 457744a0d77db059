#!/bin/sh
# Prints how many kilobytes are free in the first of these directories that is there, and its path; nothing if none is.
for path do
  [ -d "$path" ] || continue
  df -Pk -- "$path" | { read -r _; read -r _ _ _ free _; printf '%s %s\n' "$free" "$path"; }
  exit 0
done
