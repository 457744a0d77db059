#!/bin/sh
# Takes the lock of the data in this directory, on descriptor 9. Another command may have it, which sends the same data: prints that
# on stderr, again and again. Ends with 1 if what that one sends grows no more. Other scripts begin with it.
exec 9>> .lock
waited=0 size=
until flock -w 2 9; do
  now=$(du -sk incomplete 2>/dev/null | cut -f 1)
  if [ "$now" = "$size" ]; then waited=$((waited + 2)); else waited=0 size=$now; fi
  if [ "$waited" -ge 120 ]; then
    echo "another command sends this data, and nothing has come for two minutes: \`fuser -k $PWD/.lock\` ends it" >&2; exit 1
  fi
  echo "waiting for another command, which sends the same data" >&2
done
