#!/bin/sh
# Copies files of `outputs` in the work directory $1 into version $2 of the code where another version has a newer one: that has
# run since version $2 was sent. In a folder that `give` shares, the containers' group may write them. Prints on
# stderr what cannot be copied, and fails then.
cd -- "$1" 2>/dev/null && [ -d "code/$2" ] || exit 0
# shellcheck source=leaves.sh
. ./leaves.sh
# shellcheck disable=SC2016  # the inner shell has these variables
results | xargs -r0 sh -c "$hidden"'
  version=$1; shift; older=
  for path do
    to=code/$version/${path#code/*/}
    [ "$path" != "$to" ] || continue
    if hidden "$path"; then echo "$path: Permission denied" >&2; older=1; continue; fi
    [ ! -f "$to" ] || [ "$path" -nt "$to" ] || continue
    mkdir -p -- "${to%/*}" || { older=1; continue; }
    new=${to%/*}/.new-$$
    if cp -pf -- "$path" "$new"; then # half a copy would be the newest
      [ ! -g "${to%/*}" ] || chmod g+rw -- "$new"
      mv -f -- "$new" "$to"
    else
      rm -f -- "$new"
      [ ! -f "$path" ] || older=1 # else it was removed meanwhile
    fi
  done
  [ -z "$older" ]' sh "$2"
