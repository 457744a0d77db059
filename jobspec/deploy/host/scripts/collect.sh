#!/bin/sh
# Prints what the job in the work directory $1 leaves behind, as a tar. Behind it, between two lines $2, are the first lines of
# what went wrong and `exit` with tar's exit code: who reads it knows from these that nothing is missing.
# A file that grows while it is read is whole as it was before; one that has several names comes under each.
# shellcheck source=leaves.sh
. ./leaves.sh
export LC_ALL=C
calm='--warning=no-file-changed --warning=no-file-removed --warning=no-file-shrank --warning=no-file-ignored'
[ -d "$1" ] || leaves() { :; }
exec 3>&1
# shellcheck disable=SC2086  # it is several words
said=$({
  { [ ! -d "$1" ] || cd -- "$1"; } && leaves | tar $calm --hard-dereference --null -T - -cf - >&3
  printf 'exit %d\n' $?
} 2>&1 | sed -e '6,$ {$!d;}')
printf '%s\n%s\n%s\n' "$2" "$said" "$2"
