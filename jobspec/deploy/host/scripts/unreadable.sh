#!/bin/sh
# Prints the name of the first file or folder that the user cannot read, of what the job in the work directory $1 leaves behind.
cd -- "$1" 2>/dev/null || exit 0
# shellcheck source=leaves.sh
. ./leaves.sh
# shellcheck disable=SC2016  # the inner shell has these variables
leaves | xargs -r0 sh -c "$hidden"'
  for path do ! hidden "$path" || { printf "%s\n" "$path"; exit; }; done
  find "$@" ! -type l \( ! -readable -o -type d ! -executable \) -print -quit' sh 2>/dev/null | head -n 1
