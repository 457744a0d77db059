#!/bin/sh
# Holds a lock for as long as lines come in, one each $7 seconds at least. $1-$3: as for find.sh; $4: the file's name,
# $5: who wants it, $6: `break` or `stay`, as for lock.sh.
# Prints the work directory and the directory of what is the host's own, one a line; then what lock.sh prints. At its end
# the code of what waited for a line: timeout(1) gives 124 where none came in time.
# shellcheck source=find.sh
. ./find.sh
printf '%s\n' "$work" "$own"
expiry=$7
set -- "$own/$4" "$5" "$6" "$work"
# shellcheck source=lock.sh
. ./lock.sh
code=0
while [ "$code" = 0 ]; do timeout "$expiry" sh -c 'read -r tick' 9>&- || code=$?; done
unlock
echo "ended $code"
