#!/bin/sh
# Prints the work directory and the directory of what is the host's own, one a line. $1-$3: as for find.sh.
# shellcheck source=find.sh
. ./find.sh
printf '%s\n' "$work" "$own"
