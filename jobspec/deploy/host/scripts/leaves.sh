#!/bin/sh
# Says what the job leaves behind in the work directory that is the current one. Of a file of `outputs`, which each version of
# the code has, the newest counts: a version that was sent ahead has a copy. Prints nothing; `leaves` and `results` print
# names, each with a zero byte: `results` those of such files, and of those that may be in a folder that the user cannot enter;
# `leaves` these and logs, what is known of processes, folders.
# shellcheck source=output_files.sh
. ./output_files.sh
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
