#!/bin/sh
# Prints all files and links below $1, each with a zero byte at its end: kind, mode, size, seconds since 1970 of its last change,
# and name. Prints `none` if there is no such folder.
[ -d "$1" ] || { printf none; exit 0; }
cd -- "$1" && LC_ALL=C find . \( -type f -o -type l \) -printf '%y %m %s %T@ %P\0'
