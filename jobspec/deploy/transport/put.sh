#!/bin/sh
# Writes stdin to the file $1 with the mode $2, all $3 bytes of it or nothing: a link that is cut looks like an end of input.
# It is made in the folder $4, if any: where a container can write, that could put a link in its place. Prints nothing.
set -eu; umask 077
folder=$(dirname -- "$1"); mkdir -p -- "$folder"
new=$(mktemp -- "${4:-$folder}/.jobctl.XXXXXX"); trap 'rm -f -- "$new"' EXIT
cat > "$new"
[ "$(wc -c < "$new")" -eq "$3" ] || { echo "the connection broke off" >&2; exit 1; }
chmod "$2" "$new"; mv -f -- "$new" "$1"
