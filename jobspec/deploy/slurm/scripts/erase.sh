#!/bin/sh
# Removes the job's directory $1, and the folder above it if that is empty then: it is jobctl's too.
# Prints nothing. Ends with 77, and removes nothing, where these are not ours.
# shellcheck source=../../host/scripts/mine.sh
. ../../host/scripts/mine.sh
mine "$1" || exit 77
[ -z "$nothing" ] || exit 0
[ ! -d "$1" ] || rm -rf -- "$1" || exit
rmdir -- "${1%/*}" 2>/dev/null || :
