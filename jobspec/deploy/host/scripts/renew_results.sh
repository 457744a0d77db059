#!/bin/sh
# Copies files of `outputs` in the work directory $1 into version $2 of the code where another version has a newer one: that has
# run since version $2 was sent. In a folder that `give` shares, the containers' group may write them. Prints on
# stderr what cannot be copied, and fails then.
cd -- "$1" 2>/dev/null && [ -d "code/$2" ] || exit 0
# shellcheck source=leaves.sh
. ./leaves.sh
# shellcheck disable=SC2016  # the inner shell has these variables
results | xargs -r0 sh -c "$hidden
$copied"'
  version=$1 here=$2; shift 2; older=
  set -C # nothing is written through a link that is there already
  renewed() {
    {
      case $(readlink /proc/self/fd/6) in "$here"/*) ;; *) echo "$2: a link leads out of the code" >&2; return 1 ;; esac
      copied "$1" /proc/self/fd/6 "$here" || return
      [ ! -g "${2%/*}" ] || chmod g+rw -- /proc/self/fd/6
    } 6> "$2"
  }
  for path do
    to=code/$version/${path#code/*/}
    [ "$path" != "$to" ] || continue
    if hidden "$path"; then echo "$path: Permission denied" >&2; older=1; continue; fi
    [ ! -f "$to" ] || [ "$path" -nt "$to" ] || continue
    mkdir -p -- "${to%/*}" || { older=1; continue; }
    new=${to%/*}/.new-$$
    rm -f -- "$new"
    if renewed "$path" "$new"; then # half a copy would be the newest
      mv -fT -- "$new" "$to"
    elif [ $? = 3 ]; then # a link that leads elsewhere stays one
      rm -f -- "$new"
      ! link=$(readlink -- "$path") || { ln -s -- "$link" "$new" && mv -fT -- "$new" "$to"; }
    else
      rm -f -- "$new"
      [ ! -f "$path" ] || older=1 # else it was removed meanwhile
    fi
  done
  [ -z "$older" ]' sh "$2" "$(pwd -P)/code"
