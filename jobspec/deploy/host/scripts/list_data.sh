#!/bin/sh
# Prints how many kilobytes are free below $1, the name of the newest version of data there, and digests and modes of its files;
# nothing more without one.
at=$1
while [ ! -d "$at" ]; do at=${at%/*}; at=${at:-/}; done
free=$(df -Pk -- "$at" | { read -r _; read -r _ _ _ free _; printf '%s' "$free"; })
printf '%s\n' "$free"
cd -- "$1" 2>/dev/null || exit 0
# shellcheck source=newest_files.sh
. ./newest_files.sh
