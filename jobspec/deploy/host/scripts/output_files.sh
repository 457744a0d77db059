#!/bin/sh
# About files of `outputs`, which containers write. Prints nothing. The text `hidden` is a function that says whether a path may
# be in a folder that the user cannot enter, and `copied` one that copies such a file.
# shellcheck disable=SC2016,SC2034  # other shells have these variables, and scripts that begin with this one use the texts
hidden='hidden() {
  at=$1
  while [ ! -e "$at" ] && [ "$at" != "${at%/*}" ]; do at=${at%/*}; done
  [ -d "$at" ] && [ ! -x "$at" ]
}'
# Copies file $1 to $2. Containers write where $1 is, and may have put a link there, to a key of the user perhaps: what was
# opened counts, and ends with 3 where that is not below the folder $3.
copied='copied() {
  { case $(readlink /proc/self/fd/5) in "$3"/*) cp -p -- /proc/self/fd/5 "$2" ;; *) return 3 ;; esac; } 5< "$1"
}'
