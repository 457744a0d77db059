#!/bin/sh
# Ends the programs of this user that have the variable $1, as NAME=VALUE, in their environment. Prints nothing.
grep -lzxF -- "$1" /proc/[0-9]*/environ 2>/dev/null | sed -n 's,^/proc/\([0-9]*\)/environ$,\1,p' |
  while IFS= read -r pid; do kill -TERM "$pid" 2>/dev/null; done
:  # one that has ended meanwhile needs no signal
