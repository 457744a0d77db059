#!/bin/sh
# Makes the directory $1, of what is the host's own. Ends with 1, and says why, if somebody else owns what it lies in. Prints
# nothing.
umask 077
# shellcheck source=mine.sh
. ./mine.sh
mine "$1" && mkdir -p -- "$1" && mine "$1"
