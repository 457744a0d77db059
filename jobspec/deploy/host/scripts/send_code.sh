#!/bin/sh
# Makes version $2 below $1 from files of version $3, named by the first $4 bytes of stdin, and the tar behind them of $5
# bytes; or, after $6 bytes of digests that sha256sum checks, more tars of any size. It has its name when it is whole. Older
# versions than $3 are removed, but for those that may run: an artefact or the ledger names them. Of the other arguments $7
# are folders to make, the rest files that version $3 may have written, and this one keeps: it fails if it cannot copy one,
# with 77 if the user cannot read it, and an older version goes on that has such a file. Prints nothing.
set -eu; umask 022
# shellcheck source=output_files.sh
. ./output_files.sh
eval "$hidden"
eval "$copied"
top=$1 version=$2 base=$3 names=$4 size=$5 sums=$6 folders=$7; shift 7
mkdir -p -- "$top"; cd -- "$top"; here=$(pwd -P)
new=$(mktemp -d "$top/../.code.XXXXXX"); trap 'rm -rf -- "$new"' EXIT
mkdir "$new/files"
head -c "$names" > "$new/names"; [ "$sums" -eq 0 ] || head -c "$sums" > "$new/sums"; cat > "$new/tar"
[ "$sums" -gt 0 ] || [ "$(wc -c < "$new/tar")" -eq "$size" ] || { echo "the connection broke off" >&2; exit 1; }
# Copies, not second names: containers write here, and what runs from the other version has to keep its own.
if [ "$names" -gt 0 ]; then
  (cd -- "$base" && xargs -r0 cp -fP --preserve=mode,timestamps --reflink=auto --parents -t "$new/files" -- < "$new/names")
  find "$new/files" -type d -exec chmod 00755 {} +
fi
if [ "$sums" -eq 0 ]; then tar -xpf "$new/tar" -C "$new/files"; else
  tar -ixpf "$new/tar" -C "$new/files"
  (cd "$new/files" && sha256sum --quiet -c ../sums) >&2 || { echo "it differs from what was sent first" >&2; exit 1; }
fi
while [ "$folders" -gt 0 ]; do mkdir -p -- "$new/files/$1"; shift; folders=$((folders - 1)); done
: > "$new/results"
for path do
  printf '%s\0' "$path" >> "$new/results"
  if [ -n "$base" ] && [ -f "$base/$path" ] && mkdir -p -- "$(dirname -- "$new/files/$path")"; then
    if copied "$base/$path" "$new/result" "$here"; then # half a copy would be the newest
      mv -f -- "$new/result" "$new/files/$path"
    elif [ $? = 3 ]; then # a link that leads elsewhere stays one
      ! to=$(readlink -- "$base/$path") || ln -sf -- "$to" "$new/files/$path"
    elif [ -f "$base/$path" ]; then # else it was removed meanwhile
      [ ! -r "$base/$path" ] || exit 1
      echo "\`sudo chmod a+r '$top/$base/$path'\` there makes it readable" >&2
      exit 77
    fi
  elif [ -n "$base" ] && hidden "$base/$path"; then
    echo "\`sudo chmod -R a+rX '$top/$base'\` there makes it readable" >&2
    exit 77
  fi
done
mv -f -- "$new/results" "$top/../.results"
sync -f "$new/files" 2>/dev/null || : # or a power cut may leave it its name, and files without content
touch "$new/files"; mv -T -- "$new/files" "$top/$version"
for old in *; do
  case $old in "$version"|"$base") continue ;; esac
  grep -qs -- "code/$old" ../compose.yaml ../*.sh && continue
  grep -qs -- "\"code\": \"$old\"" ../run/ledger.json && continue
  for path do [ ! -f "$old/$path" ] || [ -r "$old/$path" ] || continue 2; done # no other version may have it
  rm -rf -- "$old" 2>/dev/null || :
done
