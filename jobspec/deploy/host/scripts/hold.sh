#!/bin/sh
# Holds a lock for as long as lines come in, one each $7 seconds at least. $1-$3: as for find.sh; $4: the file's name,
# $5: who wants it, $6: `break` or `stay`, as for lock.sh.
# Prints the work directory and the directory of what is the host's own, one a line; then what lock.sh prints.
# shellcheck source=find.sh
. ./find.sh
printf '%s\n' "$work" "$own"
expiry=$7
set -- "$own/$4" "$5" "$6"
# shellcheck source=lock.sh
. ./lock.sh
while timeout "$expiry" sh -c 'read -r tick' 9>&-; do :; done
unlock
