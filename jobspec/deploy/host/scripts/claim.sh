#!/bin/sh
# Ends with 1, and says why, if somebody else owns what the directory $1, of what is the host's own, lies in. Prints nothing.
umask 077
# shellcheck source=mine.sh
. ./mine.sh
mine "$1"
