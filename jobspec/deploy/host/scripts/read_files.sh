#!/bin/sh
# Prints $4 bytes of file $2 below $1, from byte $3 on (counted from 1; none if $4 is 0), then a tar file with those files whose
# names are on stdin, each with a zero byte at its end.
set -e
cd -- "$1"
[ "$4" -eq 0 ] || tail -c "+$3" -- "./$2" | head -c "$4"
LC_ALL=C exec tar -c -f - --format=gnu --owner=0 --group=0 --numeric-owner --mode=u-s,g-s,o-t --hard-dereference \
  --no-recursion --null --no-unquote -T -
