#!/bin/sh
# Adds to the files of version $2 of data below $1 that are there, in `incomplete`, which has the stamp $3. Of stdin, the first $6
# bytes are names of files in it to remove, the next $5 names of files of version $4 to give a second name there. Then come
# $10 bytes that continue file $8 behind its first $12 bytes, which gets mode $9 and time $11 (if $10 is not 0), and a tar to its
# end; or names of files in folder $7 of this host, if that is given, to copy. Names end with a zero byte. Prints the new stamp.
# Ends with 75, and does nothing, if another command was quicker. With $13, the names of version $4 are those that get no second
# name: all others do, and `incomplete` has to be empty.
set -eu; umask 022
top=$1 version=$2 stamp=$3 base=$4 names=$5 stale=$6 folder=$7; shift 7
mkdir -p -- "$top"; cd -- "$top"
# shellcheck source=lock_data.sh
. ./lock_data.sh
if [ -d "$version" ] || [ "$(cat .stamp 2>/dev/null)" != "$stamp" ]; then exit 75; fi
date +%s.%N > .stamp
mkdir -p incomplete
find incomplete -type l -delete
head -c "$stale" | (cd incomplete && xargs -r0 rm -f --)
link() { (cd -- "$base" && xargs -r0 cp -Pplf --parents -t "$top/incomplete" --); }
if [ -n "$6" ]; then
  (cd -- "$base" && find . -type f -print0) | link
  head -c "$names" | (cd incomplete && xargs -r0 rm -f --)
fi
find incomplete -mindepth 1 -type d -empty -delete
[ -n "$6" ] || [ "$names" -eq 0 ] || head -c "$names" | link
if [ "$3" -gt 0 ]; then
  truncate -s "$5" -- "incomplete/$1"
  head -c "$3" >> "incomplete/$1"
  chmod "$2" "incomplete/$1"; touch -d "@$4" "incomplete/$1"
fi
if [ -z "$folder" ]; then tar -xpf - -C incomplete; else
  at=$PWD
  (cd -- "$folder" && xargs -r0 cp -fP --preserve=mode,timestamps --reflink=auto --parents -t "$at/incomplete" --)
  find incomplete -type d -exec chmod 755 {} +
  find incomplete -type f -perm /7000 -exec chmod u-s,g-s,o-t -- {} +
fi
cat .stamp
