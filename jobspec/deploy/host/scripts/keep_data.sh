#!/bin/sh
# Gives `incomplete` below $1, which has the stamp $3 and was found whole, the name of version $2. Prints nothing. Ends with 75, and
# does nothing, if another command has changed it.
set -eu
cd -- "$1"
# shellcheck source=lock_data.sh
. ./lock_data.sh
if [ -d "$2" ]; then exit 0; fi
[ "$(cat .stamp 2>/dev/null)" = "$3" ] || exit 75
sync -f incomplete 2>/dev/null || : # or a power cut may leave it its name, and files without content
touch -- incomplete; mv -T -- incomplete "$2"
