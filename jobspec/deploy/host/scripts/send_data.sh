#!/bin/sh
# Makes version $2 of data below $1: of files of version $3, whose names are the first $4 bytes of stdin, and of the tar at its
# end. If a folder $6 of this host is given, the names of files in it take the place of the tar: these are copied. Between
# them are $5 bytes of digests, as sha256sum reads them: all that came has to agree with them. It has its name when it is
# whole. A file of several versions is there once, with several names. Prints nothing.
set -eu; umask 022
top=$1 version=$2 base=$3 names=$4 sums=$5 folder=$6
mkdir -p -- "$top"; cd -- "$top"
exec 9> .lock; flock 9
rm -rf -- .new.*
if [ -d "$version" ]; then cat > /dev/null; exit 0; fi
new=$(mktemp -d "$top/.new.XXXXXX"); trap 'rm -rf -- "$new"' EXIT
mkdir "$new/files"
head -c "$names" > "$new/names"; head -c "$sums" > "$new/sums"
[ "$names" -eq 0 ] || (cd -- "$base" && xargs -0 cp -pl --parents -t "$new/files" -- < "$new/names")
if [ -z "$folder" ]; then tar -xpf - -C "$new/files"; else
  cat > "$new/names"
  (cd -- "$folder" && xargs -r0 cp -P --preserve=mode,timestamps --reflink=auto --parents -t "$new/files" -- < "$new/names")
  find "$new/files" -type d -exec chmod 755 {} +
fi
[ "$sums" -eq 0 ] || (cd -- "$new/files" && LC_ALL=C sha256sum --quiet --strict -c "$new/sums") || {
  echo "what has arrived differs from what was sent: was it changed meanwhile?" >&2; exit 1
}
touch -- "$new/files"; mv -T -- "$new/files" "$top/$version"
