#!/bin/sh
# Prints the name of the newest version in this directory, and digests and modes of its files; nothing without one. Files with a
# line feed in their names are left out: such a name can look like the digest of another file. So are those of more than `most`
# bytes, which may be outputs of many GB: none of them is asked about, and to read them takes minutes in which nothing is printed.
# Other scripts end with it, and set `most`, and `at`, what comes before the version's name.
# shellcheck disable=SC2012,SC2015,SC2154  # names are hashes, and `ls` sorts by time
base=$(ls -t | head -n 1); [ -n "$base" ] && cd -- "$base" || exit 0
printf '%s\n' "$at$base"
files() {
find . -type f ! -path '*
*' ! -size "+${most}c" "$@" 2>/dev/null
}
# Where sha256sum uses no instructions of the processor for that, openssl takes half the time.
{ command -v openssl >/dev/null && files -exec openssl dgst -sha256 -r {} +; } || files -exec sha256sum -- {} +
files -printf '%m %p\n'; :
