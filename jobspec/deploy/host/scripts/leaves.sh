#!/bin/sh
# Says what the job leaves behind in the work directory that is the current one. Of a file of `outputs`, which each version of
# the code has, the newest counts: a version that was sent ahead has a copy. Prints nothing; `leaves` and `results` print
# names, each with a zero byte: `results` those of such files, `leaves` these and logs, what is known of processes, folders.
results() {
  # shellcheck disable=SC2016  # the inner shell has these variables
  [ ! -s .results ] || xargs -r0 sh -c '
    for path do
      path=${path#./} newest=
      for version in code/*; do
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
