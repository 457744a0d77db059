#!/bin/sh
# Says what the job leaves behind in the work directory that is the current one. Of a file of `outputs`, which each version of
# the code has, the newest counts: a version that was sent ahead has a copy. Prints nothing; `leaves` and `results` print
# names, each with a zero byte: `results` those of such files, and of those that may be in a folder that the user cannot enter;
# `leaves` these and logs, what is known of processes, folders. The text `hidden` is a function that says so of a path, and
# `copied` one that copies such a file.
# shellcheck disable=SC2016  # other shells have these variables
hidden='hidden() {
  at=$1
  while [ ! -e "$at" ] && [ "$at" != "${at%/*}" ]; do at=${at%/*}; done
  [ -d "$at" ] && [ ! -x "$at" ]
}'
# Copies file $1 to $2. Containers write where $1 is, and may have put a link there, to a key of the user perhaps: what was
# opened counts, and ends with 3 where that is not below the folder $3.
# shellcheck disable=SC2034  # scripts that begin with this one use it
copied='copied() {
  { case $(readlink /proc/self/fd/5) in "$3"/*) cp -p -- /proc/self/fd/5 "$2" ;; *) return 3 ;; esac; } 5< "$1"
}'
results() {
  # shellcheck disable=SC2016
  [ ! -s .results ] || xargs -r0 sh -c "$hidden"'
    for path do
      path=${path#./} newest=
      for version in code/*; do
        ! hidden "$version/$path" || printf "%s\0" "$version/$path"
        [ -f "$version/$path" ] || continue
        [ -n "$newest" ] && [ ! "$version/$path" -nt "$newest" ] || newest=$version/$path
      done
      [ -z "$newest" ] || printf "%s\0" "$newest"
    done' sh < .results
}
leaves() {
  for part in node-*/logs node-*/processes outputs; do [ ! -e "$part" ] || printf '%s\0' "$part"; done
  results
}
