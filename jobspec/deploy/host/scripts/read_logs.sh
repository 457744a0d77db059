#!/bin/sh
# Prints parts of files below the work directory $1, one after the other. The other arguments are PATH OFFSET COUNT, and so on.
# Each part is COUNT bytes: what is gone of a file counts as zeros.
cd -- "$1" || exit 0; shift
while [ $# -gt 2 ]; do
  { if [ -f "$1" ]; then tail -c "+$(($2 + 1))" -- "$1"; fi; head -c "$3" /dev/zero; } | head -c "$3"
  shift 3
done
