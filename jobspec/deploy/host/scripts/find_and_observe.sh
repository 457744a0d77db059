#!/bin/sh
# Does what observe.sh does, for directories that are not known yet. $1-$3: as for find.sh. Prints what observe.sh prints.
# shellcheck source=find.sh
. ./find.sh
set -- "$work" "$own"
# shellcheck source=observe.sh
. ./observe.sh
