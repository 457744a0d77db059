#!/bin/sh
# Prints `here` if version $2 of data is below $1. Otherwise: how many kilobytes are free there, the name of the newest other
# version (an empty line without one), and digests and modes of its files.
if [ -d "$1/$2" ]; then touch -- "$1/$2"; echo here; exit 0; fi
at=$1
while [ ! -d "$at" ]; do at=${at%/*}; at=${at:-/}; done
free=$(df -Pk -- "$at" | { read -r _; read -r _ _ _ free _; printf '%s' "$free"; })
printf '%s\n' "$free"
cd -- "$1" 2>/dev/null || exit 0
# shellcheck disable=SC2012,SC2015  # names are hashes, and `ls` sorts by time
base=$(ls -t | head -n 1); [ -n "$base" ] && cd -- "$base" || exit 0
printf '%s\n' "$base"
find . -type f -exec sha256sum -- {} + 2>/dev/null
find . -type f -exec stat -c '%a %n' {} + 2>/dev/null; :
