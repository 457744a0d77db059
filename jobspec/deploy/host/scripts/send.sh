#!/bin/sh
# Unpacks the tar on stdin (all $2 bytes of it, or nothing) beside the directory $1, then moves its files there. $3: a folder of
# secrets that is removed, if any; the others are folders to make. Prints nothing. Where somebody else may have made $1 or the
# folder above it, as in /scratch, they could put their own files in the place of ours, which we run: it fails there.
set -eu; umask 022
work=$1 size=$2 stale=$3; shift 3
# shellcheck source=mine.sh
. ./mine.sh
mine "$work"
if [ ! -d "$work" ]; then
  top=${work%/*/*}
  [ -d "$top" ] || (umask 077; mkdir -p -- "$top")
  (umask 066; mkdir -p -- "$work") # a daemon that starts containers may have to pass; nobody else needs a list
  mine "$work"
fi
[ -z "$nothing" ] || { echo "$work was removed" >&2; exit 1; }
if [ -n "$stale" ] && [ -e "$stale" ]; then mine "${stale%/*}"; rm -rf -- "$stale" "$work/secrets"; fi
chmod 711 "$work"; cd -- "$work"
new=$work/.jobctl.$$; trap 'rm -rf -- "$new"' EXIT
[ ! -e "$new" ] || rm -rf -- "$new"
mkdir -p -- "$new" "$@"
cat > "$new/.tar"
[ "$(wc -c < "$new/.tar")" -eq "$size" ] || { echo "the connection broke off" >&2; exit 1; }
tar -C "$new" -xpf "$new/.tar"
find "$new" -type f -exec sync {} + 2>/dev/null || : # or a power cut may leave some without content
set -- "$new"/*; [ ! -e "$1" ] || mv -f -- "$@" .
