#!/bin/sh
# Removes the folder $1 and those above it for as long as they are empty and jobctl's own: called `.jobctl`, or closed to all
# others, as jobctl makes them. A directory that was there before, such as /var/tmp or /scratch, stays. Prints nothing.
# Other scripts begin with it.
tidy() {
  at=$1
  while [ "${at:-/}" != / ] && [ "$at" != "${HOME-}" ]; do
    case ${at##*/}:$(stat -c %a -- "$at" 2>/dev/null) in .jobctl:*|*:700|*:2700) ;; *) return 0 ;; esac
    rmdir -- "$at" 2>/dev/null || return 0
    at=${at%/*}
  done
}
