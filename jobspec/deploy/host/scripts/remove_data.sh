#!/bin/sh
# Removes versions of data below $1, each of the other arguments NAME/VERSION; nothing is sent there meanwhile. Prints nothing.
set -eu
# shellcheck source=tidy.sh
. ./tidy.sh
# shellcheck source=mine.sh
. ./mine.sh
mine "$1"
[ -z "$nothing" ] && cd -- "$1" 2>/dev/null || exit 0
shift
for path do
  [ -d "$path" ] || continue
  exec 9> "${path%%/*}/.lock"; flock 9
  rm -rf -- "$path" "${path%%/*}/.stamp"
  exec 9>&-
  [ -n "$(ls -- "${path%%/*}")" ] || rm -rf -- "${path%%/*}"
done
! rmdir -- "$PWD" "${PWD%/*}" 2>/dev/null || tidy "${PWD%/*/*}"
