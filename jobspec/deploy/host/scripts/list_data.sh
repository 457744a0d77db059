#!/bin/sh
# Prints `here` if version $2 of data is below $1. Otherwise: how many kilobytes are free there, the name of the newest other
# version, and digests and modes of its files; nothing more without one.
if [ -d "$1/$2" ]; then touch -- "$1/$2"; echo here; exit 0; fi
at=$1
while [ ! -d "$at" ]; do at=${at%/*}; at=${at:-/}; done
free=$(df -Pk -- "$at" | { read -r _; read -r _ _ _ free _; printf '%s' "$free"; })
printf '%s\n' "$free"
cd -- "$1" 2>/dev/null || exit 0
# shellcheck source=newest_files.sh
. ./newest_files.sh
