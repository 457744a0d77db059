#!/bin/sh
# Removes files and folders, $3 and on, in the work directory $1 of a job and the directory $2 of what is the host's own. Prints
# nothing. Ends with 77, and removes nothing, where these are not ours.
# shellcheck source=mine.sh
. ./mine.sh
mine "$1" && mine "$2" || exit 77
shift 2
rm -rf -- "$@"
