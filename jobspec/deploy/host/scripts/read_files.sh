#!/bin/sh
# Prints a tar file with those files below $1 whose names are on stdin, each with a zero byte at its end.
cd -- "$1" && LC_ALL=C exec tar -c -f - --format=gnu --owner=0 --group=0 --numeric-owner --hard-dereference --no-recursion \
  --null --no-unquote -T -
