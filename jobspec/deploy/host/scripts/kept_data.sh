#!/bin/sh
# Prints the versions of data below $1, one a line: name, version, kilobytes, and seconds since 1970 when it was last sent or
# found there.
cd -- "$1" 2>/dev/null || exit 0
for path in */*; do
  [ -d "$path" ] || continue
  kept=$(du -skl -- "$path" 2>/dev/null | cut -f 1)
  printf '%s %s %s %s\n' "${path%%/*}" "${path#*/}" "${kept:-0}" "$(stat -c %Y -- "$path")"
done
